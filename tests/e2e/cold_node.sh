#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# An empty node follows one that is full of what builds make, and is killed again and again on the way: in the end it has the
# same set, digest by digest; it fetched nothing that it had on disk; and N blobs took N/16 syncs or fewer.
#
#   BLOBS=5000 KILLS=3       what it is done with; 50000 and 10 by hand. With KILLS=0 it also tells how fast the same records are
#                            read and appended without a network, where that is built (make benches)
# shellcheck source=/dev/null
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/nodes.bash"
BLOBS=${BLOBS:-5000} KILLS=${KILLS:-3}

make_nodes full cold
relay cold full
follow cold full
check "a node starts" start full
mkdir "$WORK/mix"
bytes=$(python3 tests/e2e/build_mix.py "$WORK/mix" "$BLOBS")
at full --json push "$WORK/mix" >"$WORK/pushed" 2>"$WORK/err"
same "and is filled" 0 $?
rm -rf "$WORK/mix" &
all=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["blobs"])' "$WORK/pushed")
echo "$all blobs, $bytes bytes"

# Entries of the index and blobs fetched, as they are now: metrics are a second old.
look() {
    at cold --json status | python3 -c '
import json, sys
status = json.load(sys.stdin)
print(status["index_entries"], status["peers"][0]["blobs_fetched"])'
}

# What the life that is ending has done, besides those before.
syncs=0 fetched=0 again=0
account() {
    local entries now
    # In this order: what was counted is in the index when that is looked at.
    read -r _ now < <(look)
    read -r entries _ < <(look)
    syncs=$((syncs + $(metric cold varve_segment_syncs_total)))
    fetched=$((fetched + now))
    [ "$now" -le $((entries - had)) ] || again=$((again + now - entries + had))
}
# What a life begins with, once its index is loaded: it fetches from its start on, so what it has fetched is not counted.
loaded() { [ "$(grep -c 'event=index_loaded' "$WORK/cold.log")" -ge "$1" ]; }
begin() {
    start cold && within 30 loaded "$kill" || return 1
    local entries now
    # In this order: what was in the index has been counted, a whole batch at once, when that is looked at.
    read -r entries _ < <(look)
    read -r _ now < <(look)
    had=$((entries - now))
}
has_entries() {
    local entries now
    read -r entries now < <(look)
    [ "$entries" -ge "$1" ]
}

began=$(date +%s%N) kill=0
check "an empty node starts" begin
for ((kill = 1; kill <= KILLS; kill++)); do
    # Somewhere in its part of the way.
    part=$((all / (KILLS + 1)))
    within 600 has_entries $((part * (kill - 1) + RANDOM * part / 32768 + 1)) || not_ok "it gets on"
    account
    read -r entries now < <(look)
    end cold
    begin || not_ok "it starts after kill $kill"
    echo "kill $kill at $entries of $all, $now fetched, $had when it was back"
done
check "it catches up" caught_up cold full 600
took_ms=$((($(date +%s%N) - began) / 1000000))
account
echo "$fetched blobs fetched in $((KILLS + 1)) lives, $syncs syncs, $took_ms ms, $((bytes * 1000 / 1048576 / took_ms)) MiB/s"
check "it has the same set" same_set cold full
read -r entries now < <(look)
same "and as many entries" "$all" "$entries"
check "N blobs took N/16 syncs or fewer" test "$syncs" -le $((all / 16))
# A blob is in the index a moment before it is counted, or after.
check "nothing that was on disk was fetched again" test "$again" -le $((KILLS * 16))
check "it stops with status 0" stop cold
check "and the other" stop full
# What the machine can do without a network, and with all records at hand.
if [ -x "$BUILD/bench/micro_copy" ] && [ "$KILLS" = 0 ]; then
    rm -rf "$WORK/cold"
    "$VARVE" fsck --list "$WORK/full" 2>/dev/null | "$BUILD/bench/micro_copy" "$WORK/full" "$WORK/copy"
fi
finish_nodes
