#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A bucket on Ceph's radosgw, started for it on loopback: the driver does there as with the fake; a server that is killed while uploads are
# pending brings all of them after its start, none twice; a node whose disk is gone serves everything; while the gateway hangs what is here
# is served, what may be there alone is UNAVAILABLE, and what is written meanwhile gets there afterwards. Skipped where Ceph is not
# installed.
#
#   BLOBS=200                how many, of 3 KiB or so, and one of 70 MiB
#   WITH_TLS=yes             the driver over TLS, too
#   HANG=yes                 the last of these, which takes as long as the client's patience
# shellcheck source=/dev/null
. "$(dirname "$0")/lib.sh"
BLOBS=${BLOBS:-200}
. "$(dirname "$0")/ceph.bash"

if [ -n "${WITH_TLS:-}" ]; then
    check "radosgw starts with TLS" start_ceph --tls
    check "it does as the fake, over TLS" env CK_RUN_CASE=real "$BUILD/tests/test_s3"
    check "who is not vouched for is not talked to" bash -c "unset VARVE_TEST_S3_CA; ! CK_RUN_CASE=real '$BUILD/tests/test_s3'"
    end_ceph
    unset VARVE_TEST_S3_CA S3_CA
fi
check "radosgw starts" start_ceph
check "it does as the fake" env CK_RUN_CASE=real "$BUILD/tests/test_s3"

metric() { curl -s -m 5 "http://$HTTP/metrics" | awk -v name="$1" '$1 == name { print $2 }'; }
blobs_sent() { echo $(($(metric 'varve_tier_uploaded_total{kind="blob"}') + $(metric varve_tier_packed_total))); }
blobs_there() { echo $(($(blobs_sent) + $(metric varve_tier_present_total))); }
until_there() { # BLOBS, sent or found there
    local _
    for _ in $(seq 300); do
        [ "$(blobs_there)" -ge "$1" ] 2>/dev/null && return 0
        sleep 0.1
    done
    echo "$(blobs_there) blobs are there, and $1 are waited for"
    return 1
}
start_node() { start_server --tier-url "$S3_ENDPOINT" --tier-bucket "$S3_BUCKET" --tier-region "$S3_REGION" "$@"; }
# The client tries again until its time is over.
says_later() {
    ! "$VARVE" --timeout 5 cat "$1" "$2" >/dev/null 2>"$WORK/cat.err" && grep -qE 'UNAVAILABLE|DEADLINE_EXCEEDED' "$WORK/cat.err" &&
        ! grep -q NOT_FOUND "$WORK/cat.err"
}

tree=$WORK/tree
mkdir "$tree"
for number in $(seq "$BLOBS"); do head -c $((number * 16 + 1)) /dev/urandom >"$tree/$number"; done
head -c $((70 << 20)) /dev/urandom >"$tree/large"

# The gateway hangs, so that everything is pending when the server is killed.
check "a node starts" start_node
check "the gateway is paused" at_ceph --pause rgw
root=$("$VARVE" push "$tree" 2>"$WORK/push.err" | tail -1)
same "a push does not wait for the bucket" 1 "$(grep -c '0 there' "$WORK/push.err")"
kill_server
check "the gateway goes on" at_ceph --resume rgw
check "the node starts again" start_node
check "all that was pending gets there" until_there $((BLOBS + 2))
sleep 0.5
same "each blob once" $((BLOBS + 2)) "$(blobs_there)"
same "the large one and no other as an object, the others in packs" 1 "$(metric 'varve_tier_uploaded_total{kind="blob"}')"
check "it stops" stop_server

rm -rf "$DATA"
check "it starts with nothing" start_node
check "it serves everything" "$VARVE" pull "$root" "$WORK/out"
check "which is the same" diff -r "$tree" "$WORK/out"
same "nothing of it was sent again" 0 "$(blobs_sent)"
check "it stops, too" stop_server

rm -rf "$DATA"
start_through() { start_node --tier-mode through --tier-find on; }
check "it starts with nothing, and writes that wait for the bucket" start_through
same "what the bucket has is not missing: nothing is sent" 1 "$("$VARVE" push "$tree" 2>&1 >"$WORK/root" | grep -c ' 0 uploaded')"
head -c 3000 /dev/urandom >"$WORK/late"
late=$("$VARVE" put "$WORK/late")
kill_server
rm -rf "$DATA"
check "its disk is gone the moment that it has answered" start_node
check "and what it has answered is there" "$VARVE" get "$late" -o "$WORK/late.out"
check "byte for byte" cmp "$WORK/late" "$WORK/late.out"
check "it stops again" stop_server

[ -n "${HANG:-}" ] || finish
rm -rf "$DATA"
check "it starts once more with nothing" start_node
check "one file is read" "$VARVE" cat "$root" 7
check "the gateway is paused again" at_ceph --pause rgw
check "what is here is served" "$VARVE" cat "$root" 7
check "what may be there alone is not called missing" says_later "$root" 8
echo new >"$WORK/new"
check "writes are taken" "$VARVE" put "$WORK/new"
check "the gateway goes on again" at_ceph --resume rgw
check "what was written meanwhile gets there" until_there 1
check "and the rest is served again" "$VARVE" cat "$root" 8
check "it stops at last" stop_server
finish
