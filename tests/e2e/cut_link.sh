#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The connection to a peer breaks again and again while large blobs come from it: none is there before it is whole, all are in the
# end, and what lies on the disk is sound.
#
#   CUTS=12                  1000 by hand
# shellcheck source=/dev/null
. "$(dirname "$0")/lib.sh"
export NETWORK=relays
. "$(dirname "$0")/nodes.bash"
CUTS=${CUTS:-12} BLOBS=4
SIZE=33554432

make_nodes near far
relay far near 1 20000000
follow far near
check "a node starts" start near
digests=()
for ((number = 0; number < BLOBS; number++)); do
    head -c $SIZE /dev/urandom >"$WORK/blob$number"
    digests+=("$(at near put "$WORK/blob$number")")
done
check "another starts" start far
cut=0 early=0
while [ $cut -lt "$CUTS" ]; do
    sleep "0.$((RANDOM % 8))$((RANDOM % 10))"
    sever far near || not_ok "the connection breaks"
    cut=$((cut + 1))
    for ((number = 0; number < BLOBS; number++)); do
        at far missing "${digests[number]}" >"$WORK/missing" 2>"$WORK/err"
        [ -s "$WORK/missing" ] && continue
        at far get "${digests[number]}" -o "$WORK/got" 2>"$WORK/err" && cmp -s "$WORK/blob$number" "$WORK/got" || early=$((early + 1))
    done
done
same "blobs that were there before they were whole" 0 $early
check "it catches up" caught_up far near 120
for ((number = 0; number < BLOBS; number++)); do
    check "blob $number comes" at far get "${digests[number]}" -o "$WORK/got"
    check "byte for byte" cmp "$WORK/blob$number" "$WORK/got"
done
check "the sets agree" same_set far near
check "one stops with status 0" stop far
check "and the other" stop near
check "what is on its disk is sound" "$VARVE" fsck "$WORK/far"
finish_nodes
