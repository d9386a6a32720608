#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Two nodes that follow each other, under load. Each in turn is killed, and each is cut off from the other: clients of the one
# that is left, and after a cut those of both, see no failed read and no failed write. When it is back both get to the same set,
# and their action results agree, though both were told others meanwhile.
#
#   SECONDS_EACH=3           how long the load is, in each of the four cases
#   BAZEL=yes                a real Bazel builds with the one that is left, when it is at hand
# shellcheck source=/dev/null
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/nodes.bash"
SECONDS_EACH=${SECONDS_EACH:-3}

make_nodes a b
relay a b
relay b a
follow a b
follow b a
check "a node starts" start a
check "and another" start b
check "a is told what will be read all the time" driver a load read --seed 1 --batches 2 --streams 1 --blobs 200 --blob-bytes 30000
check "b gets it" caught_up b a 60

# Until $WORK/enough is there: everything that was stored, from NAME.
read_all() {
    local rounds=0
    until [ -e "$WORK/enough" ]; do
        driver "$1" check read >"$WORK/reading-$1" 2>&1 || return 1
        rounds=$((rounds + 1))
    done
    [ $rounds -gt 0 ]
}
seed=100
# under_load CASE HOW NAME: what HOW does to NAME happens in the middle of a load on both.
under_load() {
    local case=$1 how=$2 hit=$3 one kind
    local -A job=()
    rm -f "$WORK/enough"
    for one in a b; do
        seed=$((seed + 1))
        driver "$one" load "$case-$one" --seed $seed --batches 1 --blob-bytes 6000 --seconds "$SECONDS_EACH" >"$WORK/blobs-$one" 2>&1 &
        job[blobs-$one]=$!
        driver "$one" load "actions-$one" --seed $((seed + 1000)) --actions 1 --blob-bytes 500 --seconds "$SECONDS_EACH" \
            >"$WORK/actions-$one" 2>&1 &
        job[actions-$one]=$!
        read_all "$one" &
        job[reading-$one]=$!
    done
    sleep $((SECONDS_EACH / 2))
    $how "$hit"
    for one in a b; do
        for kind in blobs actions; do
            wait "${job[$kind-$one]}"
            answered_all "$case" $? "$how" "$hit" $kind "$one"
        done
    done
    : >"$WORK/enough"
    for one in a b; do
        wait "${job[reading-$one]}"
        answered_all "$case" $? "$how" "$hit" reading "$one"
    done
}
answered_all() {
    local case=$1 status=$2 how=$3 hit=$4 kind=$5 one=$6
    [ "$how" = end ] && [ "$one" = "$hit" ] && return
    same "$case: no call of a client of $one failed, $kind" 0 "$status"
    [ "$status" = 0 ] || cat "$WORK/$kind-$one"
}
agree() {
    check "$1: b catches up" caught_up b a 60
    check "$1: a catches up" caught_up a b 60
    check "$1: and what came with that" caught_up b a 60
    check "$1: the sets and action results agree" same_set a b
    check "$1: and so seen from b" same_set b a
    for one in a b; do
        check "$1: all that a acknowledged is at $one" driver "$one" check "$1-a"
        check "$1: all that b acknowledged is at $one" driver "$one" check "$1-b"
    done
}

for hit in a b; do
    under_load "kill-$hit" end "$hit"
    check "kill-$hit: it is back" start "$hit"
    agree "kill-$hit"
    under_load "cut-$hit" cut_off "$hit"
    let_in "$hit"
    agree "cut-$hit"
done

bazel=../shared/accept/bazel.sh
if [ "${BAZEL:-}" = yes ] && [ -x $bazel ] && command -v bazel >/dev/null; then
    $bazel "$(address b)" >"$WORK/bazel" 2>&1 &
    building=$!
    sleep 15
    end a
    wait $building
    same "a Bazel that builds with b notices nothing of the end of a" 0 $?
    tail -3 "$WORK/bazel"
    check "a is back" start a
    agree kill-a
fi
check "a stops with status 0" stop a
check "b stops with status 0" stop b
finish_nodes
