#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Two nodes that follow each other, one with a quarter of the other's capacity: the small one becomes up to date and holds the
# newest; what it evicts stays at the large one, and is not fetched again.
# shellcheck source=/dev/null
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/nodes.bash"
MIB=$((1024 * 1024))

make_nodes large small
relay large small
relay small large
flags large --capacity 640MiB --reserve 0B --small-segment-size 8MiB --large-segment-size 16MiB --vouch 0s
flags small --capacity 160MiB --reserve 0B --small-segment-size 8MiB --large-segment-size 16MiB --vouch 0s
follow large small
follow small large

# put_set NAME MIB: so much in blobs of 300 KB and some large ones, at the large node; their digests are in $WORK/set-NAME
put_set() {
    local number root
    mkdir "$WORK/files"
    for ((number = 0; number < $2 * 2; number++)); do
        head -c 300000 /dev/urandom >"$WORK/files/$number"
    done
    for ((number = 0; number < $2 / 10; number++)); do
        head -c 4000000 /dev/urandom >"$WORK/files/large$number"
    done
    root=$(at large push "$WORK/files" 2>"$WORK/err") || return 1
    rm -rf "$WORK/files"
    at large --json ls -r "$root" | python3 -c '
import json, sys
for node in json.load(sys.stdin):
    print("%s/%d" % (node["digest"]["hash"], node["digest"]["size_bytes"]))' >"$WORK/set-$1"
    [ -s "$WORK/set-$1" ]
}
missing() { at "$1" missing --digests "$2" 2>/dev/null | wc -l; }
fetched() { metric small varve_peer_bytes_fetched_total; }

check "the large node starts" start large
check "and is given three times of what the small one holds" put_set old 360
check "the small node starts" start small
check "it becomes up to date" caught_up small large 120
check "and more comes" put_set new 40
check "which it gets" caught_up small large 60
same "it holds the newest" 0 "$(missing small "$WORK/set-new")"
same "all is at the large one" 0 "$(missing large "$WORK/set-old")"
check "in its capacity" test "$(du -sB1 "$WORK/small/segments" | cut -f1)" -le $((161 * MIB))
before=$(fetched) large_before=$(metric large varve_peer_blobs_fetched_total)
sleep 5
same "nothing is fetched again" "$before" "$(fetched)"
same "nor the other way round" "$large_before" "$(metric large varve_peer_blobs_fetched_total)"
check "once more" put_set newest 40
check "which it gets" caught_up small large 60
came=$(($(fetched) - before))
check "and that alone: $((came / MIB)) MiB" test $came -le $((60 * MIB))
same "it holds the newest" 0 "$(missing small "$WORK/set-newest")"
# Only now: what is asked for counts as used, and is kept before what is not.
check "and not all" test "$(missing small "$WORK/set-old")" -gt 100
at large replicate --to "$(address small)" --all --compare >"$WORK/differences" 2>"$WORK/err"
same "they differ" 5 $?
same "only by what the small one could not keep, and not by what was deleted" not-at-destination \
    "$(sed 's/ .*//' "$WORK/differences" | sort -u)"
check "the small node is killed" end small
check "and starts again" start small
check "it becomes up to date" caught_up small large 60
check "without getting all of it once more: $(($(fetched) / MIB)) MiB" test "$(fetched)" -le $((20 * MIB))
same "all is at the large one" 0 "$(missing large "$WORK/set-old")"
check "the small one stops with status 0" stop small
check "and the large one" stop large
finish_nodes
