#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Three nodes, each with both others as peers: what is stored at one gets to each other once, not twice and not round in
# circles, and when all have all nothing moves any more.
# shellcheck source=/dev/null
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/nodes.bash"
BLOBS=${BLOBS:-1500}
nodes=(a b c)

make_nodes a b c
for one in "${nodes[@]}"; do
    for other in "${nodes[@]}"; do
        [ "$one" = "$other" ] || relay "$one" "$other"
    done
done
follow a b c
follow b a c
follow c a b
for one in "${nodes[@]}"; do
    check "$one starts" start "$one"
done
loads=()
for one in "${nodes[@]}"; do
    driver "$one" load "$one" --seed "$((${#loads[@]} + 1))" --batches 2 --streams 1 --blobs "$BLOBS" --blob-bytes 30000 >"$WORK/load-$one" 2>&1 &
    loads+=($!)
done
for load in "${loads[@]}"; do
    wait "$load" || not_ok "a load ends well: $(cat "$WORK"/load-*)"
done
all_caught_up() {
    for one in "${nodes[@]}"; do
        for other in "${nodes[@]}"; do
            [ "$one" = "$other" ] || caught_up "$one" "$other" 60 || return 1
        done
    done
}
# Twice: what came from the third is in a log, too.
check "all catch up" all_caught_up
check "and with what came of that" all_caught_up
for one in "${nodes[@]}"; do
    for other in "${nodes[@]}"; do
        check "$other has what was stored at $one" driver "$other" check "$one"
    done
done
check "a and b have the same set" same_set a b
check "b and c have the same set" same_set b c
entries=$(metric a varve_index_entries)
fetched=0
for one in "${nodes[@]}"; do
    fetched=$((fetched + $(metric "$one" varve_peer_blobs_fetched_total)))
done
echo "$entries entries, fetched $fetched, at best $((2 * entries))"
check "each blob was fetched twice, once for each node that lacked it" test $((fetched * 10)) -le $((2 * entries * 11))
check "and not less often" test "$fetched" -ge $((2 * entries))

positions() {
    for one in "${nodes[@]}"; do
        durable "$one"
        metric "$one" varve_peer_blobs_fetched_total
    done
}
before=$(positions)
sleep 3
same "nothing moves any more" "$before" "$(positions)"
for one in "${nodes[@]}"; do
    check "$one stops with status 0" stop "$one"
done
finish_nodes
