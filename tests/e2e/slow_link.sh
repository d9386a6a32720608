#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A node follows another that is 160 ms and 100 Mbit/s away: what it has to get takes about as long as its bytes take on that link,
# since many blobs travel at once; blobs that come one after the other are there a little more than a round trip later.
#
#   SMALL=2000 LARGE=3       blobs of 4 KiB and of 10 MiB; 20000 and 200 by hand
# shellcheck source=/dev/null
. "$(dirname "$0")/lib.sh"
export NETWORK=relays
. "$(dirname "$0")/nodes.bash"
SMALL=${SMALL:-2000} LARGE=${LARGE:-3}
BYTES_A_SECOND=12500000

make_nodes near far
relay far near 80 $BYTES_A_SECOND
follow far near
check "a node starts" start near
mkdir "$WORK/files"
python3 -c '
import os, sys
for kind, count, size in (("small", int(sys.argv[2]), 4096), ("large", int(sys.argv[3]), 10 << 20)):
    for number in range(count):
        with open("%s/%s%d" % (sys.argv[1], kind, number), "wb") as file:
            file.write(os.urandom(size))' "$WORK/files" "$SMALL" "$LARGE"
at near push "$WORK/files" >"$WORK/root" 2>"$WORK/err"
same "it is filled" 0 $?
rm -rf "$WORK/files"
began=$(date +%s%N)
check "one far away starts" start far
check "and catches up" caught_up far near 600
took_ms=$((($(date +%s%N) - began) / 1000000))
bytes_ms=$(((SMALL * 4096 + LARGE * 10485760) * 1000 / BYTES_A_SECOND))
echo "$took_ms ms; the bytes alone take $bytes_ms ms on the link"
# No sharp bound: machines that test are busy. One blob a round trip would be a hundred times too slow.
check "in about the time that the bytes take" test $took_ms -le $((bytes_ms * 3 + 5000))
check "the sets agree" same_set far near
began=$(date +%s%N)
for number in 1 2 3 4 5; do
    head -c 1000 /dev/urandom >"$WORK/blob"
    at near put "$WORK/blob" >"$WORK/out"
    check "blob $number comes" caught_up far near 20
done
echo "5 blobs one after the other: $((($(date +%s%N) - began) / 1000000)) ms"
check "one stops with status 0" stop far
check "and the other" stop near
finish_nodes
