#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A sync that fails, for real: ext4 on a loop device whose file lies in a tmpfs that is too small. Without a journal a second
# sync of the same file would say OK although pages are gone; with one the file system turns read-only. Nothing that waits is
# acknowledged, writes are refused from then on and the server says so, reads go on, and after a restart on a disk that is
# large enough everything acknowledged is there, and nothing that was lost is.
# shellcheck source=/dev/null
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/loop.bash"
needs_loop
driver=$BUILD/tests/crash/driver
[ -x "$driver" ] || skip "there is no $driver: make VARIANT=debug tests"
segments=(--reserve 0B --small-segment-size 16MiB --large-segment-size 32MiB)

# field NAME FILE: of what the driver printed there
field() {
    sed -n "s/.*\<$1=\([^ ]*\).*/\1/p" "$2"
}
# More than any sum of zeros: did it lose something?
above_zero() {
    [ "$1" -gt 0 ]
}
syncs() {
    metric 'varve_segment_syncs_total{lane="small"}'
    metric 'varve_segment_syncs_total{lane="large"}'
}

# run KIND MKFS OPTION...
run() {
    local kind=$1 journal=$WORK/journal-$1 image=$WORK/small/disk.img before size
    shift
    echo "# $kind"
    # shellcheck disable=SC2034 # lib.sh uses it
    DATA=$WORK/disk/data
    SERVER_LOG=$WORK/log-$kind
    check "a disk that is smaller than it says" make_tmpfs small 64m
    make_disk disk "$image" 600M "$@" || finish
    check "the server starts" start_server "${segments[@]}"
    [ -n "$SERVER_PID" ] || finish
    check "small blobs and action results are stored" \
        "$driver" load --server "$SERVER" --journal "$journal" --blobs 300 --batches 2 --actions 1
    check "and large ones" "$driver" load --server "$SERVER" --journal "$journal" --blobs 4 --streams 1 --seed 2
    check "all are there" "$driver" check --server "$SERVER" --journal "$journal"
    same "health is" serving "$(health)"

    "$driver" load --server "$SERVER" --journal "$journal" --batches 100 --seconds 120 --blob-bytes 262144 --seed 3 \
        >"$WORK/load" 2>&1
    same "100 clients wait; then writes fail" 3 $?
    same "as a service that is not available" UNAVAILABLE "$(field code "$WORK/load")"
    check "and say for how long" grep -q "refuses writes until" "$WORK/load"
    echo "    $(cat "$WORK/load")"

    check "nothing but the acknowledged is there, and can be read" \
        "$driver" check --server "$SERVER" --journal "$journal"
    same "of those that waited none is listed" 0 "$(field found "$WORK/said")"
    check "though some waited" above_zero "$(field missing "$WORK/said")"
    same "varve_read_only is" 1 "$(metric varve_read_only)"
    same "the failure is counted" 1 "$(metric varve_segment_sync_failures_total)"
    same "the log has one line about it" 1 "$(grep -c 'event=lane_failed lane=small' "$SERVER_LOG")"
    same "health is" not-serving "$(health)"
    same "of what writes" not-serving "$(health google.bytestream.ByteStream)"
    same "readyz is" 503 "$(curl -s -m 10 -o /dev/null -w '%{http_code}' "http://$HTTP/readyz")"
    check "status says so" grep -q 'read-only' <("$VARVE" status)
    # It would go well now.
    check "the disk gets as large as it says" mount -o remount,size=700m "$WORK/small"
    before=$(syncs)
    for size in 500 3000000; do
        head -c $size /dev/urandom >"$WORK/new"
        "$VARVE" put "$WORK/new" >"$WORK/out" 2>"$WORK/err"
        same "a further write of $size bytes is refused" 4 $?
    done
    same "and no sync is tried again" "$before" "$(syncs)"
    stop_server
    same "SIGTERM ends it with 0 all the same" 0 $?

    # The file system is mounted afresh: what its pages had and the disk has not is gone.
    check "unmounted" unmount disk
    e2fsck -fy "$image" >"$WORK/fsck" 2>&1
    check "the file system is repaired ($?)" test $? -lt 4
    check "mounted" mount_disk disk "$image"
    check "the server starts again" start_server "${segments[@]}"
    [ -n "$SERVER_PID" ] || finish
    check "everything acknowledged is there, and what is listed can be read" \
        "$driver" check --server "$SERVER" --journal "$journal"
    echo "    $(cat "$WORK/said")"
    check "something was lost, so that this proves anything" above_zero "$(field missing "$WORK/said")"
    same "health is" serving "$(health)"
    check "writes are OK again" "$driver" load --server "$SERVER" --journal "$journal" --blobs 50 --batches 2 --streams 1 --seed 4
    kill_server
    check "and there after a kill" start_server "${segments[@]}"
    check "with all the rest" "$driver" check --server "$SERVER" --journal "$journal"
    stop_server
    same "SIGTERM ends it with 0" 0 $?
    check "unmounted" unmount disk
    check "and the disk is gone" unmount small
}

run without-journal -O ^has_journal
run with-journal -J size=4
finish
