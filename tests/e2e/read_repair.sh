#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# One of two nodes is down while the other takes blobs and action results. When it is back it is asked at once, before it has
# caught up: it gives out all of it, from the first call on. A blob that is damaged on its disk comes from the other, and is on
# its own disk again. With --read-repair off nobody is asked.
#
#   BLOBS=5000
# shellcheck source=/dev/null
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/nodes.bash"
BLOBS=${BLOBS:-5000}

make_nodes a b empty
relay a b
relay b a
follow a b
follow b a
for one in a b empty; do
    check "node $one starts" start "$one"
done
check "b gets to know a" caught_up b a 30
check "b stops" stop b
check "blobs and action results are stored at a" driver a load repair --seed 7 --batches 4 --streams 2 --actions 2 --broken 1 --blobs "$BLOBS" \
    --blob-bytes 4096
at a replicate --to "$(address empty)" --all --compare >"$WORK/differences" 2>"$WORK/err"
sed -n 's/^not-at-destination //p' "$WORK/differences" >"$WORK/blobs"
blobs=$(wc -l <"$WORK/blobs")
check "all of them are known: $blobs" test "$blobs" -ge $((BLOBS * 9 / 10))

check "b starts" start b
number() { python3 -c '
import json, sys
told = json.load(open(sys.argv[1]))
for key in sys.argv[2:]:
    told = told[key]
print(told)' "$WORK/$1" "${@:2}"; }
# FindMissingBlobs with all of them; then GetActionResult for each, and BatchReadBlobs or ByteStream.Read for each.
at a --json replicate --to "$(address b)" --digests "$WORK/blobs" >"$WORK/asked" 2>"$WORK/err"
same "b is asked at once which blobs it lacks" 0 $?
same "and calls none missing" "$blobs" "$(number asked present)"
at a --json replicate --to "$(address b)" --all --action-results >"$WORK/actions" 2>"$WORK/err"
same "and for the action results" 0 $?
at b --json replicate --to "$(address empty)" --digests "$WORK/blobs" >"$WORK/read" 2>"$WORK/err"
same "each blob is read from b at once" 0 $?
same "not one is missing" 0 "$(number read missing_at_source)"
same "and all were read" "$blobs" "$(number read copied)"
check "there are action results" test "$(number actions action_results present)" -gt 0
same "each is found at b" 0 "$(number actions action_results copied)"
same "and is that of a" 0 "$(number actions action_results other_result_kept)"
echo "$(metric b varve_find_missing_elsewhere_total) blobs were on a alone when b was asked for them"
check "b catches up" caught_up b a 30
check "and has all" driver b check repair
check "the sets agree" same_set b a

# What cannot be had now can be had later: nothing is remembered of a peer that did not answer.
check "a is cut off" cut_off a
head -c 50000 /dev/urandom >"$WORK/alone"
alone=$(at a put "$WORK/alone")
at b --timeout 5 get "$alone" >"$WORK/out" 2>&1
check "what a alone has is not given out by b" test $? != 0
check "a is back" let_in a
check "and b gives it out" within 60 at b --timeout 5 get "$alone" -o "$WORK/got"
check "byte for byte" cmp "$WORK/alone" "$WORK/got"

head -c 300000 /dev/urandom >"$WORK/blob"
digest=$(at a put "$WORK/blob")
check "a blob gets to b" caught_up b a 30
check "b stops" stop b
# damage NODE: one byte of the blob, somewhere in its segments, is another one from now on.
damage() {
    python3 -c '
import glob, sys
wanted = open(sys.argv[1], "rb").read()
for name in glob.glob(sys.argv[2] + "/segments/*.seg"):
    with open(name, "r+b") as file:
        at = file.read().find(wanted)
        if at >= 0:
            file.seek(at + 1000)
            file.write(bytes([wanted[1000] ^ 1]))
            sys.exit(0)
sys.exit("it is in no segment")' "$WORK/blob" "$WORK/$1"
}
check "it is damaged on the disk of b" damage b
check "b starts" start b
check "and gives the blob out" at b get "$digest" -o "$WORK/got"
check "byte for byte" cmp "$WORK/blob" "$WORK/got"
check "a stops" stop a
check "it is on the disk of b again" at b get "$digest" -o "$WORK/got"
check "b stops with status 0" stop b

# Without it: what is not here is not found, though a has it, until it has come by the log.
check "a starts" start a
flags b --read-repair off
check "b starts, without read repair" start b
check "and catches up" caught_up b a 30
check "b stops" stop b
check "it is damaged once more" damage b
check "b starts" start b
at b get "$digest" >"$WORK/out" 2>"$WORK/err"
same "a damaged blob is not found" 3 $?
check "a stops with status 0" stop a
check "b stops with status 0" stop b
finish_nodes
