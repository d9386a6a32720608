#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# variants: asan
#
# varve fsck on the data directory of a real server: exit statuses, what it names, that it changes nothing, and what it gets
# out; and that the server then starts and has the rest. varve scrub against a running one.
# shellcheck source=/dev/null
. "$(dirname "$0")/lib.sh"

# run COMMAND...: its output in $out and $WORK/out, what it said to a person in $err, its status in $status
run() {
    timeout 120 "$@" >"$WORK/out" 2>"$WORK/err" </dev/null
    status=$?
    out=$(tr -d '\0' <"$WORK/out")
    err=$(cat "$WORK/err")
}
said() { grep -qE -- "$1" <<<"$out"; }
told() { grep -qE -- "$1" <<<"$err"; }
sizes=(--small-segment-size 8MiB --large-segment-size 8MiB)
# Everything in the data directory but what a look may make: name, size and sum of each file.
fingerprint() { (cd "$DATA" && find . -type f ! -name LOCK -print0 | sort -z | xargs -0 sha256sum); }
# flip FILE OFFSET: turns a bit of one byte over
flip() {
    local byte
    byte=$(od -An -tu1 -j "$2" -N 1 "$1" | tr -d ' ')
    printf "%b" "$(printf '\\x%02x' $((byte ^ 4)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}
# place HASH/SIZE: sets SEGMENT (a path) and OFFSET from fsck --list
place() {
    local number
    # "blob HASH/SIZE segment N offset M"
    read -r number OFFSET < <("$VARVE" fsck "$DATA" --list 2>/dev/null | awk -v digest="$1" '$2 == digest { print $4, $6 }')
    [ -n "$OFFSET" ] || return 1
    SEGMENT=$(printf '%s/segments/%016x.seg' "$DATA" "$number")
}

run "$VARVE" fsck
same "without a directory it is wrong usage" 2 $status
run "$VARVE" fsck "$WORK/nowhere"
same "a directory that is not there cannot be opened" 3 $status
mkdir "$WORK/full" && echo x >"$WORK/full/file"
run "$VARVE" fsck "$WORK/full"
same "neither can one that is no store" 3 $status
same "and it is left alone" file "$(ls -A "$WORK/full")"

# ---- a store with blobs of both lanes
check "the server starts" start_server "${sizes[@]}"
[ -n "$SERVER_PID" ] || finish
digests=()
for i in $(seq 30); do
    head -c $((i * 700)) /dev/urandom >"$WORK/blob-$i"
    digests+=("$("$VARVE" put "$WORK/blob-$i")")
done
for i in 31 32 33; do
    head -c 5000000 /dev/urandom >"$WORK/blob-$i"
    digests+=("$("$VARVE" put "$WORK/blob-$i")")
done
same "all were stored" 33 "$(printf '%s\n' "${digests[@]}" | grep -c /)"
run "$VARVE" fsck "$DATA"
same "a store that a server has cannot be opened" 3 $status
check "and it says so" told 'FAILED_PRECONDITION'
kill_server

# ---- as a kill leaves it, and after a clean stop
run "$VARVE" fsck "$DATA"
same "after a kill the store is sound" 0 $status
check "it says so" said '^sound$'
check "the server starts again" start_server "${sizes[@]}"
stop_server
before=$(fingerprint)
run "$VARVE" fsck "$DATA"
same "after a clean stop the store is sound" 0 $status
check "with all that is in it" said '33 blobs, 3 of them large, and 0 action results'
run "$VARVE" --json fsck "$DATA"
check "as JSON too" python3 -c "import json,sys; s=json.loads(sys.argv[1]); assert s['sound'] and s['blobs']==33 and s['index_entries']==33, s" "$out"
run "$VARVE" fsck "$DATA" --list
same "the list has all" 33 "$(grep -c '^blob ' "$WORK/out")"
same "and names them" 0 "$(printf '%s\n' "${digests[@]}" | grep -cvFf <(cut -d ' ' -f 2 "$WORK/out"))"
run "$VARVE" fsck "$DATA" --export "${digests[4]}" -o "$WORK/one"
same "one is got out" 0 $status
check "as it was" cmp "$WORK/one" "$WORK/blob-5"
run "$VARVE" fsck "$DATA" --export "${digests[32]}"
check "a large one to standard output" cmp "$WORK/out" "$WORK/blob-33"
run "$VARVE" fsck "$DATA" --export-all "$WORK/salvage"
same "all are got out" 0 $status
good=0
for i in $(seq 33); do
    hash=${digests[$((i - 1))]%/*}
    ! cmp -s "$WORK/blob-$i" "$WORK/salvage/cas/${hash:0:2}/$hash" || good=$((good + 1))
done
same "as they were" 33 $good
same "nothing in the store has changed" "$before" "$(fingerprint)"
run "$VARVE" fsck "$DATA" --export "$(printf '0%.0s' $(seq 64))/5" -o "$WORK/none"
same "what is not there is exit status 1" 1 $status
check "and makes no file" test ! -e "$WORK/none"
run "$VARVE" fsck "$DATA" --list --export-all "$WORK/x"
same "two things at once are wrong usage" 2 $status

# ---- rot
check "a small blob has a place" place "${digests[9]}"
flip "$SEGMENT" $((OFFSET + 128 + 77))
small_segment=$((16#$(basename "$SEGMENT" .seg))) small_offset=$OFFSET
check "a large blob has a place" place "${digests[31]}"
flip "$SEGMENT" $((OFFSET + 128 + 3))
before=$(fingerprint)
run "$VARVE" fsck "$DATA"
same "damage is exit status 1" 1 $status
check "the blob is named with its place" said "^damaged blob ${digests[9]} segment $small_segment offset $small_offset to [0-9]*, in use: "
check "the manifest too" said "^damaged manifest ${digests[31]} segment .*, in use: "
same "and nothing else" 2 "$(grep -c '^damaged [a-z]* ' "$WORK/out")"
run "$VARVE" --json fsck "$DATA"
check "as JSON too" python3 -c "
import json,sys
lines=[json.loads(l) for l in sys.argv[1].splitlines()]
assert len(lines)==3 and not lines[2]['sound'] and lines[2]['lost']==2, lines
assert {l['damaged'] for l in lines[:2]}=={'blob','manifest'}, lines" "$out"
run "$VARVE" fsck "$DATA" --export-all "$WORK/salvage2"
same "getting all out is exit status 1" 1 $status
same "without the damaged" 31 "$(find "$WORK/salvage2" -type f | wc -l)"
run "$VARVE" fsck "$DATA" --export "${digests[9]}" -o "$WORK/rotten"
same "a damaged one is not got out" 1 $status
check "not even in part" test ! -e "$WORK/rotten"
same "still nothing in the store has changed" "$before" "$(fingerprint)"

# ---- the rest: FORMAT, a segment's header, the index
flip "$DATA/FORMAT" 10
flip "$SEGMENT" 25
run "$VARVE" fsck "$DATA"
check "FORMAT is told of" said '^damaged format'
check "the header too" said '^damaged segment header'
find "$DATA/index" -name '*.sst' | while read -r file; do flip "$file" 40; done
run "$VARVE" fsck "$DATA"
check "and the index" said '^damaged index'
run "$VARVE" fsck "$DATA" --rebuild-index
check "a new index" told 'the index was made anew'
same "leaves the damage in the segments" 1 $status
check "and is sound itself" test -z "$(grep '^damaged index' "$WORK/out")"
check "as is FORMAT" test -z "$(grep '^damaged format' "$WORK/out")"

# ---- the server starts, has all but the two, and takes them again
check "the server starts" start_server "${sizes[@]}"
good=0
for i in $(seq 33); do
    ! "$VARVE" get "${digests[$((i - 1))]}" -o "$WORK/got" 2>/dev/null || ! cmp -s "$WORK/got" "$WORK/blob-$i" || good=$((good + 1))
done
same "all but two are served" 31 $good
run "$VARVE" scrub
same "the scrub answers" 0 $status
run "$VARVE" scrub now
same "it takes no other word than start" 2 $status
run "$VARVE" scrub start
check "a pass begins" said '^scrub  *running'
for _ in $(seq 300); do
    run "$VARVE" --json scrub
    python3 -c "import json,sys; s=json.loads(sys.argv[1]); sys.exit(s['running'] or s['passes']<1)" "$out" && break
    sleep 0.2
done
check "and ends, with what it found" python3 -c "import json,sys; s=json.loads(sys.argv[1]); assert s['passes']>=1 and s['damaged']>=2 and s['position_bytes']==s['total_bytes'], s" "$out"
run "$VARVE" missing "${digests[@]}"
same "the two are missing" 2 "$(grep -c / "$WORK/out")"
"$VARVE" put "$WORK/blob-10" >"$WORK/out" && "$VARVE" put "$WORK/blob-32" >>"$WORK/out"
run "$VARVE" missing "${digests[@]}"
same "and are taken again" "" "$out"
check "the server stops with status 0" stop_server
finish
