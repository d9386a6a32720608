#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Small file systems of a script's own, on loop devices; sourced after lib.sh. Everything is unmounted and detached when the
# script ends, however it does.
#
#   needs_loop                       skips the script unless it may mount loop devices
#   make_tmpfs NAME SIZE             mounts one at $WORK/NAME
#   make_disk NAME IMAGE SIZE [MKFS OPTION...]   makes IMAGE a sparse file with ext4, mounts it at $WORK/NAME
#   mount_disk NAME IMAGE            mounts it again
#   unmount NAME                     1 when it cannot be
#   free_bytes NAME                  what a file may still take
#   fill_disk NAME FILE              makes FILE take all that is left
#   health [SERVICE]                 serving or not-serving, by grpc.health.v1.Health at $SERVER
#   metric SERIES                    its value at $HTTP
#   within SECONDS COMMAND...        tries it until it ends with 0; 1 when it never does

# shellcheck disable=SC2154 # lib.sh sets WORK, SERVER, HTTP
# shellcheck disable=SC2317 # called by trap
mounted=()

leave() {
    local i
    [ -z "$SERVER_PID" ] || kill -KILL "$SERVER_PID" 2>/dev/null
    [ -z "$SERVER_PID" ] || wait "$SERVER_PID" 2>/dev/null
    for ((i = ${#mounted[@]} - 1; i >= 0; i--)); do
        umount "$WORK/${mounted[i]}" 2>/dev/null || umount -l "$WORK/${mounted[i]}"
    done
    cleanup
}
trap leave EXIT

needs_loop() {
    local tool image=$WORK/try.img
    [ "$(id -u)" = 0 ] || skip "only root may mount"
    for tool in losetup mkfs.ext4 e2fsck fallocate; do
        command -v $tool >/dev/null || skip "there is no $tool"
    done
    truncate -s 16M "$image" || exit 1
    mkfs.ext4 -q "$image" || skip "no file system can be made here"
    mkdir "$WORK/try"
    mount -o loop "$image" "$WORK/try" 2>/dev/null || skip "loop devices cannot be mounted here"
    umount "$WORK/try" || exit 1
    rm "$image"
}

make_tmpfs() {
    mkdir -p "$WORK/$1" && mount -t tmpfs -o "size=$2" tmpfs "$WORK/$1" && mounted+=("$1")
}

make_disk() {
    local name=$1 image=$2 size=$3
    shift 3
    # Nothing is initialized later, in the background: the space that an image takes is that of what is written.
    truncate -s "$size" "$image" && mkfs.ext4 -q -E nodiscard,lazy_itable_init=1 "$@" "$image" && mkdir -p "$WORK/$name" &&
        mount_disk "$name" "$image"
}

mount_disk() {
    local device
    mount -o loop,noinit_itable "$2" "$WORK/$1" && mounted+=("$1") || return 1
    # The loop driver takes a write that its file took in part for a whole one. One page is taken or not.
    device=$(findmnt -n -o SOURCE "$WORK/$1") && echo 4 >"/sys/block/${device#/dev/}/queue/max_sectors_kb"
}

unmount() {
    local i
    umount "$WORK/$1" || return 1
    for i in "${!mounted[@]}"; do
        [ "${mounted[i]}" != "$1" ] || unset "mounted[$i]"
    done
    mounted=("${mounted[@]}")
}

free_bytes() {
    stat -f -c '%a %S' "$WORK/$1" | awk '{print $1 * $2}'
}

fill_disk() {
    local step
    for step in 1048576 65536 4096; do
        while fallocate -o "$(stat -c %s "$WORK/$1/$2" 2>/dev/null || echo 0)" -l $step "$WORK/$1/$2" 2>/dev/null; do :; done
    done
    [ "$(free_bytes "$1")" -lt 65536 ]
}

health() {
    /usr/bin/python3 - "$SERVER" "${1:-}" <<'PYTHON'
import sys, grpc
name = sys.argv[2].encode()
with grpc.insecure_channel(sys.argv[1]) as channel:
    answer = channel.unary_unary("/grpc.health.v1.Health/Check")(b"\n" + bytes([len(name)]) + name if name else b"", timeout=10)
print({b"\x08\x01": "serving", b"\x08\x02": "not-serving"}.get(answer, repr(answer)))
PYTHON
}

metric() {
    curl -s -m 10 "http://$HTTP/metrics" | awk -v series="$1" '$1 == series { print $2 }'
}

within() {
    local until=$(($(date +%s%3N) + $1 * 1000))
    shift
    while ! "$@"; do
        [ "$(date +%s%3N)" -lt $until ] || return 1
        sleep 0.2
    done
}
