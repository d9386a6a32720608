#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A segment that ends in part of a record, in noise or in zeros, as a crash in the middle of an append leaves it: after a kill,
# in the space that is allocated already, and after a clean stop, behind the footer. The server starts within 5 s each time, says
# so in one line, has all blobs, takes a new one, and has that too after another start. tests/test_recovery.c goes through every
# length; this is a sample with the real program.
# shellcheck source=/dev/null
. "$(dirname "$0")/lib.sh"
driver=$BUILD/tests/crash/driver
[ -x "$driver" ] || skip "there is no $driver: make VARIANT=debug tests"
# shellcheck disable=SC2034 # lib.sh uses it
READY_SECONDS=5
segments=(--small-segment-size 8MiB --large-segment-size 8MiB)

# tail_tool end SEGMENT            where the records end, and the bytes of the last one
# tail_tool cut SEGMENT N          keeps the first N bytes of the last record, zeros for the rest
# tail_tool noise|zeros SEGMENT N  puts such bytes behind the last record, or behind the footer
# tail_tool append SEGMENT N FROM  puts the first N bytes of the last record of FROM there
# tail_tool append_to_file SEGMENT N FROM   the same, behind the file
cat >"$WORK/tail_tool" <<'PYTHON'
import os, struct, sys
what, path = sys.argv[1:3]
data = open(path, "rb").read()
def last_record(data):
    at, last = 4096, None
    while data[at:at + 4] == b"SVR1":
        payload = struct.unpack_from("<Q", data, at + 16)[0]
        last = at
        at += (128 + payload + 63) // 64 * 64
    return last, at
last, end = last_record(data)
n = int(sys.argv[3]) if len(sys.argv) > 3 else 0
sealed = data[-64:-56] == b"VARVEEND"
at = len(data) if sealed else end
with open(path, "r+b") as file:
    if what == "end":
        print(end, end - last if last else 0, "sealed" if sealed else "open")
    elif what == "cut":
        file.seek(last + n)
        file.write(bytes(end - last - n))
    elif what in ("append", "append_to_file"):
        other = open(sys.argv[4], "rb").read()
        begin, behind = last_record(other)
        file.seek(at if what == "append" else len(data))
        file.write(other[begin:behind][:n])
    elif what in ("noise", "zeros"):
        file.seek(at)
        file.write(os.urandom(n) if what == "noise" else bytes(n))
PYTHON
tail_tool() {
    /usr/bin/python3 "$WORK/tail_tool" "$@"
}
# The newest segment of the small lane that has a record.
newest() {
    local path
    for path in $(printf '%s\n' "$1"/segments/*.seg | sort -r); do
        [ "$(od -An -tu1 -j 12 -N 1 "$path" | tr -d ' ')" = 0 ] || continue
        [ "$(od -An -c -j 4096 -N 4 "$path" | tr -d ' ')" = SVR1 ] || continue
        echo "$path"
        return 0
    done
    return 1
}
digest_of() {
    printf '%s/%s' "$(sha256sum "$1" | cut -d ' ' -f 1)" "$(stat -c %s "$1")"
}
holds_to() {
    "$driver" check --server "$SERVER" --journal "$1" >"$WORK/checked" 2>&1 || { cat "$WORK/checked"; return 1; }
}
gets() {
    "$VARVE" get "$1" >"$WORK/back" && cmp "$2" "$WORK/back"
}

# ---- 100 blobs, and one that is not to be found again: the next record
original=$WORK/data
check "a server for the store" start_server "${segments[@]}"
[ -n "$SERVER_PID" ] || finish
check "100 blobs are stored" "$driver" load --server "$SERVER" --journal "$WORK/journal" --blobs 100 --batches 1 --blob-bytes 20000
head -c 700 /dev/urandom >"$WORK/last"
check "and one more" "$VARVE" put "$WORK/last"
last=$(digest_of "$WORK/last")
kill_server
mv "$original" "$WORK/killed"
# The same without the last one, stopped in peace: what is appended is that one's record.
mkdir "$original"
cp -r --sparse=always "$WORK/killed/." "$original"
tail_tool cut "$(newest "$original")" 0
check "the server starts without the last one" start_server "${segments[@]}"
stop_server
same "and stops" 0 $?
mv "$original" "$WORK/stopped"
read -r _ bytes state <<<"$(tail_tool end "$(newest "$WORK/killed")")"
same "after the kill the last record is at the open end of its segment" "832 open" "$bytes $state"
read -r _ _ state <<<"$(tail_tool end "$(newest "$WORK/stopped")")"
same "after the stop the segment is sealed" sealed "$state"

# try KIND N LINES: on the copy in $original. LINES: about the tail, as a pattern
try() {
    local name="$1, $2 bytes" lines started
    : >"$SERVER_LOG"
    started=$(date +%s%3N)
    if ! start_server "${segments[@]}"; then
        not_ok "$name: it starts within 5 s"
        tail -5 "$SERVER_LOG"
        return
    fi
    check "$name: it starts within 5 s ($(($(date +%s%3N) - started)) ms) and has all 100" holds_to "$WORK/journal"
    lines=$(grep -c event=segment_tail_cut "$SERVER_LOG")
    same "$name: lines about the tail" "$3" "$lines"
    same "$name: no other complaint" 0 "$(grep -cE 'level=(warn|error)' <(grep -v event=segment_tail_cut "$SERVER_LOG"))"
    "$VARVE" stat "$last" >/dev/null 2>&1
    same "$name: what is there in part is missing" 3 $?
    head -c 3000 /dev/urandom >"$WORK/new"
    check "$name: a new blob is taken" "$VARVE" put "$WORK/new"
    kill_server
    check "$name: it starts again" start_server "${segments[@]}"
    check "$name: and has the new one" gets "$(digest_of "$WORK/new")" "$WORK/new"
    check "$name: and all 100" holds_to "$WORK/journal"
    kill_server
}
copy() {
    rm -rf "$original"
    cp -r --sparse=always "$WORK/$1" "$original"
}

for n in 1 60 128 129 200 827; do
    copy killed
    tail_tool cut "$(newest "$original")" $n
    try "killed, record" $n 1
done
for n in 1 64 200; do
    copy killed
    tail_tool cut "$(newest "$original")" 0
    tail_tool noise "$(newest "$original")" $n
    try "killed, noise" $n 1
done
copy killed
tail_tool cut "$(newest "$original")" 0
try "killed, zeros" 200 0

# What is behind a footer is looked at when the index is gone: with it, all that the segment has is known.
for n in 1 64 129 200; do
    copy stopped
    tail_tool append "$(newest "$original")" $n "$(newest "$WORK/killed")"
    [ $n = 1 ] || rm -r "$original/index"
    try "stopped, record" $n $((n > 1))
done
for kind in noise zeros; do
    for n in 1 64 200; do
        copy stopped
        tail_tool $kind "$(newest "$original")" $n
        [ $n = 1 ] || rm -r "$original/index"
        try "stopped, $kind" $n $((n > 1))
    done
done

# Behind the end of the file that was made last, which has no record yet.
copy stopped
tail_tool append_to_file "$(printf '%s\n' "$original"/segments/*.seg | sort | tail -1)" 200 "$(newest "$WORK/killed")"
try "stopped, record behind an empty segment" 200 1
finish
