#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A server on a disk of 300 MiB, with the default flags, that is sent much more than fits: nothing is refused, the reserve of
# the disk stays free, the oldest goes and the newest is there, also after a kill. Then with a capacity, which the files of the
# segments never pass; and what cannot work is refused at the start.
# shellcheck source=/dev/null
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/loop.bash"
needs_loop
# shellcheck disable=SC2034 # lib.sh uses it
DATA=$WORK/disk/data
MIB=$((1024 * 1024))

# put_many FROM COUNT: blobs of 900,000 bytes, one of 6 MB and some small ones
put_many() {
    local i
    mkdir -p "$WORK/new"
    for ((i = $1; i < $1 + $2 - 9; i++)); do
        head -c 900000 /dev/urandom >"$WORK/new/$i"
    done
    for ((; i < $1 + $2 - 1; i++)); do
        head -c $((i * i % 5000 + 1)) /dev/urandom >"$WORK/new/$i"
    done
    head -c 6000000 /dev/urandom >"$WORK/new/$i"
    "$VARVE" push "$WORK/new" >"$WORK/root" 2>"$WORK/err"
    local status=$?
    rm -rf "$WORK/new"
    return $status
}
least_free=$((1 << 60)) most_taken=0
look_at_disk() {
    local now
    now=$(free_bytes disk)
    [ "$now" -ge "$least_free" ] || least_free=$now
    now=$(du -sB1 "$DATA/segments" | cut -f1)
    [ "$now" -le "$most_taken" ] || most_taken=$now
}
put_rounds() {
    local round
    for ((round = 0; round < $1; round++)); do
        put_many $((round * 30)) 30 || return 1
        look_at_disk
    done
}
newest_is_there() {
    "$VARVE" pull "$(cat "$WORK/root")" "$WORK/pulled" >"$WORK/out" 2>&1 && [ "$(find "$WORK/pulled" -type f | wc -l)" = 30 ] &&
        rm -rf "$WORK/pulled"
}

make_disk disk "$WORK/disk.img" 300M -m 0 || finish
check "the server starts with default flags" start_server
[ -n "$SERVER_PID" ] || finish
head -c 900000 /dev/urandom >"$WORK/first"
first=$("$VARVE" put "$WORK/first")
check "twice the disk is stored" put_rounds 22
check "segments were evicted" test "$(metric varve_segments_evicted_total)" -gt 20
same "writes refused" 0 "$(metric 'varve_writes_refused_total{reason="disk_full"}')"
check "48 MiB and more stayed free, of a reserve of 64 MiB with the index in it" test "$least_free" -ge $((48 * MIB))
"$VARVE" get "$first" >"$WORK/out" 2>&1
same "the oldest is not found" 3 $?
check "the newest is there" newest_is_there
kill_server
check "it starts again after a kill" start_server
check "and the newest is there" newest_is_there
check "and more is stored" put_rounds 2
check "the server stops with status 0" stop_server

most_taken=0
check "it starts with a capacity that is less than what is there" start_server --capacity 128MiB
check "and stores" put_rounds 6
most_taken=0
check "and stores" put_rounds 6
check "in 128 MiB" test "$most_taken" -le $((128 * MIB + MIB))
same "varve_capacity_bytes is" $((128 * MIB)) "$(metric varve_capacity_bytes)"
check "the newest is there" newest_is_there
file_bytes_agree() {
    local counted
    counted=$(metric varve_segment_file_bytes)
    [ $(($(du -sB1 "$DATA/segments" | cut -f1) - counted)) -lt $MIB ] && [ "$(metric varve_segments)" = "$(find "$DATA/segments" -name '*.seg' | wc -l)" ]
}
check "varve_segment_file_bytes is what du says" within 10 file_bytes_agree
entries=$(metric varve_index_entries)
check "the server stops with status 0" stop_server
same "and varve_index_entries what fsck lists" "$entries" "$("$VARVE" fsck "$DATA" --list 2>"$WORK/err" | wc -l)"

"$VARVED" --data "$DATA" --capacity 100MiB >"$WORK/out" 2>&1
same "a capacity that is too small is refused" 2 $?
check "with the least that is accepted" grep -q 'accepted: 128MiB to' "$WORK/out"
"$VARVED" --data "$DATA" --capacity 10% >"$WORK/out" 2>&1
check "a per cent that comes to too little, too" grep -q 'less than the 134217728' "$WORK/out"
finish
