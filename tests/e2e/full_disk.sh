#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A disk that is full, for real: ext4 on a loop device and another file that takes what is left. Writes are refused with
# numbers and reads go on, or, when only RocksDB finds no room, nobody notices; once there is room again everything goes on
# within 10 s and without a restart. What was acknowledged is there after kills, also with the disk still full.
# shellcheck source=/dev/null
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/loop.bash"
needs_loop
driver=$BUILD/tests/crash/driver
[ -x "$driver" ] || skip "there is no $driver: make VARIANT=debug tests"
# shellcheck disable=SC2034 # lib.sh uses it
DATA=$WORK/disk/data
journal=$WORK/journal
numbers='the data disk is full: [0-9]+ of [0-9]+ bytes are free, the next segment needs [0-9]+'
seed=0

start() {
    check "the server starts" start_server --reserve 0B --small-segment-size 8MiB --large-segment-size 16MiB
    [ -n "$SERVER_PID" ] || finish
    check "all that was acknowledged is there" "$driver" check --server "$SERVER" --journal "$journal"
}
load() {
    seed=$((seed + 1))
    "$driver" load --server "$SERVER" --journal "$journal" --seed $seed "$@"
}
restart_after_kill() {
    kill_server
    start
}
# put BYTES: a new blob
put() {
    head -c "$1" /dev/urandom >"$WORK/new"
    "$VARVE" put "$WORK/new" >"$WORK/out" 2>"$WORK/err"
}
# Of the process that runs now.
index_is_there() {
    awk '/event=descriptor_limit/ { lost = 0 } /event=index_(lost|unavailable)/ { lost = 1 } /event=index_regained/ { lost = 0 }
        END { exit lost }' "$SERVER_LOG"
}
index_failed_again() {
    [ "$(metric varve_index_failures_total)" -gt "$1" ]
}
put_until_refused() {
    for _ in $(seq 40); do
        put "$1" || return 0
    done
    return 1
}
spares_are_there() {
    [ "$(find "$WORK/disk/data/segments" -name '*.seg' -size "$1" | wc -l)" -ge 2 ]
}

# ---- the segments meet the full disk
segments_meet_it() {
    local pid=$SERVER_PID size
    check "blobs and action results are stored" load --blobs 300 --batches 2 --actions 1
    check "large ones too" load --blobs 5 --streams 1
    check "the disk is filled" fill_disk disk filler
    load --batches 2 --streams 1 --actions 1 --seconds 60 >"$WORK/load" 2>&1
    same "in the end an upload is refused" 3 $?
    check "for want of space" grep -q 'code=RESOURCE_EXHAUSTED' "$WORK/load"
    check "with numbers" grep -qE "$numbers" "$WORK/load"
    check "for small ones" put_until_refused 500000
    check "and for large ones" put_until_refused 3000000
    for size in 500000 3000000; do
        put $size
        same "a blob of $size bytes as well" 1 $?
        check "with numbers" grep -qE "$numbers" "$WORK/err"
    done
    check "refusals are counted" test "$(metric 'varve_writes_refused_total{reason="disk_full"}')" -gt 0
    same "varve_read_only is" 0 "$(metric varve_read_only)"
    same "health is" serving "$(health)"
    check "all old blobs are read" "$driver" check --server "$SERVER" --journal "$journal"
    check "more than 100" test "$(sed -n 's/.*read=\([0-9]*\).*/\1/p' "$WORK/said")" -gt 100

    rm "$WORK/disk/filler"
    check "within 10 s small writes are OK again" within 10 put 100
    check "and large ones" within 10 put 2000000
    check "and many" load --blobs 200 --batches 2 --streams 1 --actions 1
    check "the index on disk is there again" within 20 index_is_there
    same "by the same process" "$pid" "$SERVER_PID"
    restart_after_kill
}

# ---- RocksDB meets it: the next segments are there already
rocksdb_meets_it() {
    local failures
    check "the next segments are made" within 10 spares_are_there 8192k
    failures=$(metric varve_index_failures_total)
    check "the disk is filled" fill_disk disk filler
    # Some 10 MiB, more than a segment: RocksDB is to flush when the segment is full.
    check "small writes are OK" load --blobs 150 --batches 2 --blob-bytes 1048576
    check "RocksDB has failed" within 10 index_failed_again "$failures"
    check "and is missed by nobody" load --blobs 20 --batches 1
    check "all is read" "$driver" check --server "$SERVER" --journal "$journal"
    same "health is" serving "$(health)"
    kill_server
    check "after a kill the disk is as full as before" fill_disk disk filler
    start
    rm "$WORK/disk/filler"
    check "there is room again, and within 10 s writes are OK" within 10 put 100
    check "of any size" within 10 put 2000000
    check "and the index on disk is there again" within 20 index_is_there
    check "writes go on" load --blobs 100 --batches 2 --streams 1 --actions 1
    restart_after_kill
}

make_disk disk "$WORK/disk.img" 300M -m 0 || finish
start
for round in 1 2; do
    echo "# round $round: segments"
    segments_meet_it
    echo "# round $round: RocksDB"
    rocksdb_meets_it
done
check "the server stops with status 0" stop_server
start
check "the server stops with status 0" stop_server
finish
