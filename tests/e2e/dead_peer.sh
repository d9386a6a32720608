#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A node with three peers: one is well, one has fallen silent (packets get lost, nothing says so), one was never there. Writes go
# on, the healthy one is up to date, memory stays what it was, status tells who is behind and how far. When the silent one is
# heard again it catches up by itself.
#
#   BLOBS=4000               a million by hand
#   SECONDS_LOAD=600         and then ROUND_BLOBS (3000) more, a pause of 5 s, and so on for so long
# shellcheck source=/dev/null
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/nodes.bash"
BLOBS=${BLOBS:-4000} SECONDS_LOAD=${SECONDS_LOAD:-0} ROUND_BLOBS=${ROUND_BLOBS:-3000}

make_nodes a well silent dead
for other in well silent dead; do
    relay a "$other"
    relay "$other" a
done
follow a well silent dead
follow well a
follow silent a
check "the node starts, though a peer is not there" start a
check "one that follows it starts" start well
check "and another" start silent
check "something is stored" driver a load before --seed 1 --batches 2 --streams 1 --blobs 300 --blob-bytes 20000
check "one has it" caught_up well a 60
check "and the other" caught_up silent a 60

# How many records the follower that is furthest behind has yet to get.
furthest_behind() {
    at a --json status | python3 -c '
import json, sys
print(max([0] + [f["small_behind_records"] + f["large_behind_records"] for f in json.load(sys.stdin)["followers"]]))'
}
memory_kib() { sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' "/proc/${node_pid[a]:?}/status"; }
cut_off silent
check "one falls silent, and what is written is answered" driver a load half --seed 2 --batches 4 --streams 1 --blobs $((BLOBS / 2)) --blob-bytes 2000
memory_half=$(memory_kib) behind_half=$(furthest_behind)
check "the other one has it all the same" caught_up well a 60
check "more is written and answered" driver a load rest --seed 3 --batches 4 --streams 1 --blobs $((BLOBS / 2)) --blob-bytes 2000
# Each minute, besides: what it takes, how many entries the index has, and how far behind who is silent knows that it is.
minute_by_minute() {
    local minute
    for ((minute = 1; minute <= SECONDS_LOAD / 60; minute++)); do
        sleep 60
        echo "minute $minute: $(memory_kib) KiB, $(metric a varve_index_entries) entries, lag $(metric silent varve_peer_lag_seconds) s"
    done
}
rounds=0
if [ "$SECONDS_LOAD" != 0 ]; then
    minute_by_minute &
    load_for_long() {
        local until=$((SECONDS + SECONDS_LOAD))
        for ((rounds = 0; SECONDS < until; rounds++)); do
            driver a load long-$rounds --seed $((10 + rounds)) --batches 2 --streams 1 --blobs "$ROUND_BLOBS" --blob-bytes 2000 || return 1
            sleep 5
        done
    }
    check "and for $SECONDS_LOAD seconds" load_for_long
fi
memory_rest=$(memory_kib) behind_rest=$(furthest_behind)
check "the other one has that too" caught_up well a $((60 + SECONDS_LOAD / 4))
check "status tells that one is behind" test "$behind_half" -ge $((BLOBS / 4))
check "and further and further" test "$behind_rest" -gt "$behind_half"
# A follower that is not heard of for a while is no series any more; it knows by then that it has lost its peer.
if [ "$SECONDS_LOAD" -lt 60 ]; then
    lag_grows() { [ "$(metric a varve_follower_lag_records)" -ge "$behind_half" ]; }
else
    lag_grows() { [ "$(metric silent varve_peer_lag_seconds)" -ge $((SECONDS_LOAD / 2)) ]; }
fi
check "so does the metric" within 10 lag_grows
echo "memory $memory_half KiB, then $memory_rest KiB; behind $behind_half, then $behind_rest records"
# What the index needs for what came meanwhile is no peer's fault: 118 bytes a blob in a node that stands alone.
check "memory is what it was" test "$memory_rest" -le $((memory_half + 65536 + behind_rest / 8))
let_in silent
check "it is heard again, and catches up by itself" caught_up silent a $((90 + SECONDS_LOAD))
for journal in before half rest $(seq -f 'long-%g' 0 $((rounds - 1))); do
    check "all of '$journal' is there" driver silent check "$journal"
done
check "the sets agree" same_set silent a
for one in a well silent; do
    check "$one stops with status 0" stop "$one"
done
finish_nodes
