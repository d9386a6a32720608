#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A bucket on Ceph's radosgw that is full, and one in which bytes have changed: while it takes nothing, writes are answered from this disk
# and wait, and all of them are there once it has room; a byte that has changed is never served, and what lies beside it is. Two nodes
# that do not know each other: what one has written the other does not call missing, and reads, without a request for each. Skipped where Ceph
# is not installed.
#
#   BLOBS=300                how many, of 10 bytes to 4 KiB or so
# shellcheck source=/dev/null
. "$(dirname "$0")/lib.sh"
BLOBS=${BLOBS:-300}
. "$(dirname "$0")/ceph.bash"
command -v rados >/dev/null || skip "rados is not installed"

check "radosgw starts" start_ceph
metric() { curl -s -m 5 "http://$HTTP/metrics" | awk -v name="$1" '$1 == name { print $2 }'; }
sum_of() { curl -s -m 5 "http://$HTTP/metrics" | awk -v name="$1{" 'index($1, name) == 1 { sum += $2 } END { printf "%d\n", sum }'; }
behind() { sum_of varve_tier_behind_bytes; }
sent() { echo $(($(metric 'varve_tier_uploaded_total{kind="blob"}') + $(metric varve_tier_packed_total) + $(metric varve_tier_present_total))); }
until_true() { # SECONDS COMMAND...
    local _
    for _ in $(seq $(($1 * 10))); do
        "${@:2}" && return 0
        sleep 0.1
    done
    return 1
}
all_sent() { [ "$(sent)" -ge "$1" ] && [ "$(behind)" -eq 0 ]; } 2>/dev/null
is_full() { in_ceph ceph osd dump | grep -q '^osd.0 .*exists,full'; }
# By a ratio that 40 MB are beyond.
make_full() {
    head -c 40M /dev/urandom >"$WORK/filler" && in_ceph rados -p casraw put filler "$WORK/filler" &&
        in_ceph ceph osd set-nearfull-ratio 0.0005 && in_ceph ceph osd set-backfillfull-ratio 0.0008 &&
        in_ceph ceph osd set-full-ratio 0.001 && until_true 30 is_full
}
make_room() { in_ceph ceph osd set-full-ratio 0.95 && in_ceph ceph osd set-backfillfull-ratio 0.9; }
start_node() { start_server --tier-url "$S3_ENDPOINT" --tier-bucket "$S3_BUCKET" --tier-region "$S3_REGION" --tier-find on "$@"; }

tree=$WORK/tree
mkdir "$tree"
for number in $(seq "$BLOBS"); do head -c $((number * 13 + 1)) /dev/urandom >"$tree/$number"; done

# ---- no room there
check "a node starts" start_node
check "the bucket is full" make_full
root=$("$VARVE" push "$tree" 2>"$WORK/push.err" | tail -1)
same "what is stored is answered" 1 "$(grep -c '0 there' "$WORK/push.err")"
sleep 6 # so that the queue has begun
same "and waits" 0 "$(sent)"
check "what is here is served" "$VARVE" cat "$root" 1
check "the bucket has room again" make_room
check "all of it gets there" until_true 60 all_sent $((BLOBS + 1))
same "in packs" "$((BLOBS + 1))" "$(metric varve_tier_packed_total)"
check "the node stops" stop_server

# ---- another node, that has never heard of the first
mv "$DATA" "$WORK/first"
check "another node starts" start_node
known() { [ "$(metric varve_tier_pack_indexes_total)" -gt 0 ]; } 2>/dev/null
check "it reads what is in packs" until_true 30 known
heads=$(sum_of varve_tier_requests_total)
"$VARVE" push "$tree" 2>"$WORK/push.err" >/dev/null
same "nothing is missing" 1 "$(grep -c ' 0 uploaded' "$WORK/push.err")"
requests=$(($(sum_of varve_tier_requests_total) - heads))
[ "$requests" -le 3 ]
same "without a request for each: listings go on ($requests)" 0 $?
check "all is read" "$VARVE" pull "$root" "$WORK/out"
check "which is the same" diff -r "$tree" "$WORK/out"
check "the other one stops" stop_server

# ---- a byte that has changed in each pack
rm -rf "$DATA"
pool=$(in_ceph rados lspools | grep -m1 'buckets.data$')
changed=0
for object in $(in_ceph rados -p "$pool" ls | grep '_varve/pack/'); do
    in_ceph rados -p "$pool" get "$object" "$WORK/object"
    printf '\377' | dd of="$WORK/object" bs=1 seek=1000 conv=notrunc status=none
    printf '\376' | dd of="$WORK/object" bs=1 seek=1001 conv=notrunc status=none
    in_ceph rados -p "$pool" put "$object" "$WORK/object" && changed=$((changed + 1))
done
[ "$changed" -ge 1 ]
same "packs in which bytes have changed: $changed" 0 $?
check "a node with nothing starts" start_node
check "it reads what is in packs" until_true 30 known
"$VARVE" --timeout 5 pull "$root" "$WORK/damaged" >/dev/null 2>&1
served=0 wrong=0
for number in $(seq "$BLOBS"); do
    "$VARVE" --timeout 5 cat "$root" "$number" >"$WORK/one" 2>/dev/null || continue
    served=$((served + 1))
    cmp -s "$WORK/one" "$tree/$number" || wrong=$((wrong + 1))
done
same "nothing wrong is served" 0 "$wrong"
lacking=$((BLOBS - served))
[ "$lacking" -ge 1 ] && [ "$lacking" -le $((2 * changed)) ]
same "and all but what has changed is: $served of $BLOBS" 0 $?
mismatches=$(metric varve_tier_mismatches_total)
[ "${mismatches:-0}" -ge 1 ]
same "it is counted: $mismatches" 0 $?
"$VARVE" push "$tree" 2>"$WORK/push.err" >/dev/null
check "who has it stores it again" "$VARVE" pull "$root" "$WORK/again"
check "and all is there" diff -r "$tree" "$WORK/again"
check "it stops" stop_server
finish
