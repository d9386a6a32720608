# SPDX-License-Identifier: Apache-2.0
"""Servers that bench/compare and bench/smoke start: varve, null servers, and those peers that are installed.

Peers are looked for in $PEERS (a directory) and then in $PATH; nothing is downloaded or built here. Each is run with the settings
that its own documentation recommends for a single node with a disk, caches large enough that nothing is evicted.
"""
import json
import os
import shutil
import signal
import socket
import subprocess
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, "build", "release")
LOAD = os.path.join(BUILD, "bench", "load")
READY_SECONDS = 120


def find_program(name):
    """The path of a peer's program, or None."""
    peers = os.environ.get("PEERS", "")
    own = os.path.join(peers, name)
    return own if peers and os.access(own, os.X_OK) else shutil.which(name)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Kind:
    """How one server is started. command(program, directory, port, http_port) gives its arguments and may write files."""

    def __init__(self, name, program, durability, command, http_metrics=False):
        self.name, self.program, self.durability = name, program, durability
        self.command, self.http_metrics = command, http_metrics

    def path(self):
        own = os.path.join(BUILD, self.program)
        return own if os.access(own, os.X_OK) else find_program(self.program)


def varve(program, directory, port, http_port):
    # The default keeps up to 10 GiB of the disk free, which small test machines do not have.
    return [program, "--data", directory + "/data", "--listen", f"127.0.0.1:{port}", "--http-listen", f"127.0.0.1:{http_port}",
            "--reserve", "1GiB"]


def null(*more):
    return lambda program, _directory, port, _http_port: [program, "--listen", f"127.0.0.1:{port}", *more]


def bazel_remote(mode):
    def command(program, directory, port, http_port):
        return [program, "--dir", directory + "/data", "--max_size", "100", "--storage_mode", mode,
                "--grpc_address", f"127.0.0.1:{port}", "--http_address", f"127.0.0.1:{http_port}", "--access_log_level", "none"]
    return command


def casd(program, directory, port, _http_port):
    return [program, "--bind", f"127.0.0.1:{port}", "--quota-high", "100G", directory + "/data"]


def bb_storage(program, directory, port, _http_port):
    def local(name, blocks, entries, new_blocks):
        os.makedirs(f"{directory}/{name}/state")
        return {"local": {
            "keyLocationMapOnBlockDevice": {"file": {"path": f"{directory}/{name}/map", "sizeBytes": entries * 66}},
            "keyLocationMapMaximumGetAttempts": 16, "keyLocationMapMaximumPutAttempts": 64,
            "oldBlocks": 8, "currentBlocks": 24, "newBlocks": new_blocks,
            "blocksOnBlockDevice": {"source": {"file": {"path": f"{directory}/{name}/blocks", "sizeBytes": blocks}},
                                    "spareBlocks": 3},
            "persistent": {"stateDirectoryPath": f"{directory}/{name}/state", "minimumEpochInterval": "300s"}}}
    allow = {"allow": {}}
    configuration = {
        "contentAddressableStorage": {"backend": local("cas", 24 << 30, 1 << 25, 3), "getAuthorizer": allow,
                                      "putAuthorizer": allow, "findMissingAuthorizer": allow},
        "actionCache": {"backend": {"completenessChecking": {"backend": local("ac", 2 << 30, 1 << 22, 1),
                                                             "maximumTotalTreeSizeBytes": 16 << 20}},
                        "getAuthorizer": allow, "putAuthorizer": allow},
        "grpcServers": [{"listenAddresses": [f"127.0.0.1:{port}"], "authenticationPolicy": allow}],
        "executeAuthorizer": allow,
        "maximumMessageSizeBytes": 16 << 20}
    with open(directory + "/configuration.jsonnet", "w", encoding="ascii") as file:
        json.dump(configuration, file)
    return [program, directory + "/configuration.jsonnet"]


def nativelink(program, directory, port, _http_port):
    def files(name):
        return {"filesystem": {"content_path": f"{directory}/{name}", "temp_path": f"{directory}/{name}-temporary",
                               "eviction_policy": {"max_bytes": 100 << 30}}}
    cas = {"verify": {"backend": files("cas"), "verify_size": True, "verify_hash": True}}
    configuration = {
        "stores": [{"name": "CAS", **cas},
                   {"name": "AC", "completeness_checking": {"backend": files("ac"), "cas_store": {"ref_store": {"name": "CAS"}}}}],
        "servers": [{"listener": {"http": {"socket_address": f"127.0.0.1:{port}"}},
                     "services": {"cas": [{"cas_store": "CAS"}], "ac": [{"ac_store": "AC"}], "capabilities": [],
                                  "bytestream": [{"cas_store": "CAS"}]}}]}
    with open(directory + "/configuration.json5", "w", encoding="ascii") as file:
        json.dump(configuration, file)
    return [program, directory + "/configuration.json5"]


KINDS = {kind.name: kind for kind in (
    Kind("varve", "varved", "durable: each write is on disk before it is acknowledged, writes share syncs", varve, True),
    Kind("null", "bench/null_server", "stores nothing", null()),
    Kind("null-hash", "bench/null_server", "stores nothing, hashes uploads", null("--hash")),
    Kind("bazel-remote", "bazel-remote", "syncs each file before it is acknowledged, not its directory; zstd at rest, the default",
         bazel_remote("zstd")),
    Kind("bazel-remote-plain", "bazel-remote", "the same, uncompressed at rest", bazel_remote("uncompressed")),
    Kind("bb-storage", "bb_storage", "not durable: syncs every 300 s", bb_storage),
    Kind("nativelink", "nativelink", "syncs each file before it is acknowledged, not its directory", nativelink),
    Kind("buildbox-casd", "buildbox-casd", "not durable: never syncs", casd),
)}


class Server:
    """A server that runs, in a directory of its own that stop() leaves behind."""

    def __init__(self, kind, directory):
        self.kind, self.directory = kind, directory
        self.port, self.http_port = free_port(), free_port()
        os.makedirs(directory, exist_ok=True)
        self.arguments = kind.command(kind.path(), directory, self.port, self.http_port)
        self.process = None
        self.started = self.start()

    def start(self):
        """Seconds until it answered; RuntimeError when it did not."""
        begun = time.monotonic()
        with open(self.directory + "/log", "ab") as log:
            self.process = subprocess.Popen(self.arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            env=dict(os.environ, RUST_LOG="warn"))  # NativeLink logs each connection otherwise
        while time.monotonic() - begun < READY_SECONDS:
            if self.process.poll() is not None:
                break
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) != 0:
                    time.sleep(0.01)
                    continue
            probed = time.monotonic()
            if self.load("--work", "capabilities", "--seconds", "0.1", "--warm-up", "0", "--timeout", "2") is not None:
                return probed - begun
        tail = open(self.directory + "/log", errors="replace", encoding="utf-8").read()[-600:]
        self.stop()
        raise RuntimeError(f"{self.kind.name} does not answer: {tail}")

    def stop(self, how=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(how)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()

    def load(self, *flags, limit=600, explain=False):
        """The report of one run of bench/load, or None when nothing could be measured."""
        command = [LOAD, "--server", f"127.0.0.1:{self.port}", "--server-pid", str(self.process.pid), "--json", *flags]
        if self.kind.http_metrics:
            command += ["--metrics", f"127.0.0.1:{self.http_port}"]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit, check=False)
        except subprocess.TimeoutExpired:
            return None
        if not done.stdout:
            if explain:
                print(f"  {self.kind.name}: {done.stderr.strip()[:300]}", flush=True)
            return None
        report = json.loads(done.stdout)
        return report if report["calls"] > 0 else None
