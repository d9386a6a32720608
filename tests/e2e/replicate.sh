#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# varve replicate between two real servers: digests, a tree, all with action results; a copy that is killed goes on where it was;
# --compare tells what differs; memory stays bounded whatever the size of a blob; what is wrong is said, with its exit status.
# shellcheck source=/dev/null
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/nodes.bash"
# shellcheck disable=SC2119 # optional arguments
replicate() { at a replicate --to "$(address b)" "$@"; }
replicate_json() { replicate --json "$@" >"$WORK/json"; }

make_nodes a b
check "a server starts" start a
check "and another" start b
check "blobs and action results are stored at the first" driver a load all --seed 7 --batches 2 --streams 2 --actions 2 --broken 1 \
    --blobs 1500 --blob-bytes 20000

at a replicate --to "$(address b)" --all --compare --action-results >"$WORK/differences" 2>"$WORK/err"
same "a comparison finds them to differ" 5 $?
blobs=$(grep -c '^not-at-destination ' "$WORK/differences")
actions=$(grep -c '^action-not-at-destination ' "$WORK/differences")
check "by more than a thousand blobs" test "$blobs" -ge 1000
check "and by action results" test "$actions" -ge 1
same "and copies nothing" 0 "$(metric b varve_index_entries)"

# Killed on the way: what has arrived stays.
replicate --all --jobs 1 >"$WORK/out" 2>&1 &
copying=$!
copied_some() { [ "$(metric b varve_index_entries)" -ge 1 ] || ! kill -0 $copying; }
within 30 copied_some
kill -KILL $copying
wait $copying 2>/dev/null
there=$(metric b varve_index_entries)
check "a copy is killed when something has arrived" test "$there" -ge 1
check "and goes on" replicate_json --all --action-results
number() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$WORK/json" "$1"; }
same "each blob was copied or there" "$blobs" $(($(number copied) + $(number present)))
check "and what had arrived was there" test "$(number present)" -ge "$there"
check "all is at the other server, byte for byte" driver b check all
check "a comparison finds nothing" same_set a b
check "nor the other way round" same_set b a
check "once more, and nothing is copied" replicate_json --all --action-results
same "blobs" "0" "$(number copied)"

mkdir -p "$WORK/tree/deep/down"
seq 100000 >"$WORK/tree/deep/down/file"
seq 10 >"$WORK/tree/small"
: >"$WORK/tree/empty"
ln -s deep/down/file "$WORK/tree/link"
root=$(at a push "$WORK/tree" 2>/dev/null)
check "a tree is copied" replicate --tree "$root"
check "and comes from the other server as it was" at b diff "$root" "$WORK/tree"
absent=$(echo never | sha256sum | cut -c 1-64)/6
printf '%s\n\n%s\n' "$root" "$absent" | replicate --digests - >"$WORK/out" 2>"$WORK/err"
same "a blob that is nowhere is not found" 3 $?
check "and named" grep -q "$absent is not at the source" "$WORK/err"
echo no digest | replicate --digests - >"$WORK/out" 2>&1
same "a line that is no digest is wrong usage" 2 $?
replicate --all --tree "$root" >"$WORK/out" 2>&1
same "as two sources are" 2 $?
at a replicate --to 127.0.0.1:1 --all >"$WORK/out" 2>"$WORK/err"
same "a destination that is not there is unavailable" 4 $?
check "and named" grep -q '127.0.0.1:1' "$WORK/err"

# 256 MiB pass through a process that may not have so many.
head -c 268435456 /dev/zero | openssl enc -aes-128-ctr -K 00 -iv 00 2>/dev/null >"$WORK/large"
large=$(at a put "$WORK/large")
rm "$WORK/large"
(
    ulimit -v 900000 # threads, gRPC and libraries
    echo "$large" | replicate --digests -
) >"$WORK/out" 2>"$WORK/err" || cat "$WORK/err"
check "a large blob passes through" at b stat "$large"

head -c 100000 /dev/urandom >"$WORK/one"
extra=$(at b put "$WORK/one")
replicate --all --compare >"$WORK/out" 2>"$WORK/err"
same "what only the destination has is a difference" 5 $?
same "and told" "not-at-source $extra" "$(cat "$WORK/out")"
check "status tells of lanes" grep -q '^lane small .* durable$' <(at a status)
check "a server stops with status 0" stop a
check "and the other" stop b
finish_nodes
