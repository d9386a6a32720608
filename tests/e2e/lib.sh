#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# What the scripts of this folder share: a server of their own on loopback, and how results are told. A script begins
#
#   . "$(dirname "$0")/lib.sh"
#
# and ends with `finish`. tests/run gives BUILD, VARVED, VARVE and TMPDIR; alone, a script takes those of the debug build
# and a temporary directory that it removes.
#
#   start_server [FLAG...]   starts $VARVED on $DATA and waits until it is ready; 1 when that fails. Sets SERVER, HTTP, SERVER_PID
#   wait_ready               until GET /readyz is 200 ($READY_SECONDS, 30); 1 when it is not or the server has ended. By HTTPS
#                            when HTTP_CA names the file of who has signed its certificate
#   stop_server              SIGTERM, waits; its exit status (0 is what it should be)
#   kill_server              SIGKILL, waits
#   check NAME COMMAND...    runs it; 'ok NAME' when it ends with 0, else 'not ok NAME' with what it said
#   same NAME WANTED GOT     'ok NAME' when they are equal, else 'not ok NAME' with both
#   skip WHY                 ends the script as skipped
#   finish                   ends it: 0 when every check was ok and there was one

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
    echo "skip functions for the other scripts, no test"
    exit 77
fi
set -u

cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
BUILD=${BUILD:-$PWD/build/debug}
VARVED=${VARVED:-$BUILD/varved}
VARVE=${VARVE:-$BUILD/varve}
WORK=$(mktemp -d "${TMPDIR:-/tmp}/varve-e2e.XXXXXX") || exit 1
DATA=$WORK/data
SERVER_LOG=$WORK/server.log
SERVER='' HTTP='' SERVER_PID=''
checks_ok=0 checks_failed=0

cleanup() {
    [ -z "$SERVER_PID" ] || kill -KILL "$SERVER_PID" 2>/dev/null
    chmod -R u+rwX "$WORK" 2>/dev/null
    rm -rf "$WORK"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# A port below those that the kernel hands out by itself, on which nobody listens now.
free_port() {
    local port
    for _ in $(seq 100); do
        port=$((20000 + RANDOM % 12000))
        if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
            echo "$port"
            return 0
        fi
    done
    return 1
}

start_server() {
    local try
    mkdir -p "$DATA"
    # Somebody else may take a port between the look and the start.
    for try in 1 2 3; do
        SERVER=127.0.0.1:$(free_port) HTTP=127.0.0.1:$(free_port)
        "$VARVED" --data "$DATA" --listen "$SERVER" --http-listen "$HTTP" "$@" >>"$SERVER_LOG" 2>&1 &
        SERVER_PID=$!
        export VARVE_SERVER=$SERVER
        wait_ready && return 0
        wait "$SERVER_PID" 2>/dev/null
        SERVER_PID=''
        tail -5 "$SERVER_LOG" | grep -qi 'in use' || break
        echo "start_server: port taken, try $try" >&2
    done
    echo "start_server: not ready; its last words:" >&2
    tail -20 "$SERVER_LOG" >&2
    return 1
}

wait_ready() {
    local tenth
    for ((tenth = 0; tenth < ${READY_SECONDS:-30} * 10; tenth++)); do
        kill -0 "$SERVER_PID" 2>/dev/null || return 1
        [ "$(curl -s -o /dev/null -m 5 -w '%{http_code}' ${HTTP_CA:+--cacert "$HTTP_CA"} "http${HTTP_CA:+s}://$HTTP/readyz" 2>/dev/null)" != 200 ] || return 0
        sleep 0.1
    done
    return 1
}

stop_server() {
    local status
    kill -TERM "$SERVER_PID" || return 1
    wait "$SERVER_PID"
    status=$?
    SERVER_PID=''
    return $status
}

kill_server() {
    kill -KILL "$SERVER_PID" || return 1
    wait "$SERVER_PID" 2>/dev/null
    SERVER_PID=''
}

ok() {
    checks_ok=$((checks_ok + 1))
    echo "ok $1"
}

not_ok() {
    checks_failed=$((checks_failed + 1))
    echo "not ok $1"
}

check() {
    local name=$1 status
    shift
    "$@" >"$WORK/said" 2>&1 # not in a subshell: it may be start_server
    status=$?
    if [ $status = 0 ]; then
        ok "$name"
    else
        not_ok "$name"
        echo "    status $status of: $*"
        head -40 "$WORK/said" | sed 's/^/    /'
    fi
}

same() {
    if [ "$2" = "$3" ]; then
        ok "$1"
    else
        not_ok "$1"
        printf '    wanted: %s\n    got:    %s\n' "$2" "$3"
    fi
}

skip() {
    echo "skip $1"
    exit 77
}

finish() {
    echo "$checks_ok ok, $checks_failed not ok"
    if [ $checks_failed != 0 ]; then
        echo "the server said at the end:"
        tail -20 "$SERVER_LOG" 2>/dev/null | sed 's/^/    /'
        exit 1
    fi
    [ $checks_ok -gt 0 ] || exit 1
    exit 0
}
