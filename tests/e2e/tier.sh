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
ceph_up=$PWD/../shared/accept/ceph-up.sh
[ -x "$ceph_up" ] || skip "no script that starts Ceph"
{ command -v radosgw && command -v ceph-osd; } >/dev/null || skip "Ceph is not installed"

ceph=''
end_ceph() { [ -z "$ceph" ] || "$ceph_up" --down "$ceph" >/dev/null 2>&1; ceph=''; }
trap 'end_ceph; cleanup' EXIT

start_ceph() { # ARGUMENT... ; sets S3_*
    local assignments
    assignments=$("$ceph_up" --store memstore --parent "$WORK" "$@" 2>"$WORK/ceph.err") || { cat "$WORK/ceph.err"; return 1; }
    eval "$assignments"
    ceph=$CEPH_DIR
    export VARVE_TEST_S3_ENDPOINT=$S3_ENDPOINT VARVE_TEST_S3_REGION=$S3_REGION VARVE_TEST_S3_BUCKET=$S3_BUCKET
    export AWS_ACCESS_KEY_ID=$S3_ACCESS_KEY AWS_SECRET_ACCESS_KEY=$S3_SECRET_KEY
    [ -z "${S3_CA:-}" ] || export VARVE_TEST_S3_CA=$S3_CA
}

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
blobs_there() { echo $(($(metric 'varve_tier_uploaded_total{kind="blob"}') + $(metric varve_tier_present_total))); }
until_there() { # BLOBS, sent or found there
    local _
    for _ in $(seq 300); do
        [ "$(blobs_there)" -ge "$1" ] 2>/dev/null && return 0
        sleep 0.1
    done
    echo "$(blobs_there) blobs are there, and $1 are waited for"
    return 1
}
start_node() { start_server --tier-url "$S3_ENDPOINT" --tier-bucket "$S3_BUCKET" --tier-region "$S3_REGION"; }
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
check "the gateway is paused" "$ceph_up" --pause "$ceph" rgw
root=$("$VARVE" push "$tree" 2>"$WORK/push.err" | tail -1)
same "a push does not wait for the bucket" 1 "$(grep -c '0 there' "$WORK/push.err")"
kill_server
check "the gateway goes on" "$ceph_up" --resume "$ceph" rgw
check "the node starts again" start_node
check "all that was pending gets there" until_there $((BLOBS + 2))
sleep 0.5
same "each blob once" $((BLOBS + 2)) "$(blobs_there)"
check "it stops" stop_server

rm -rf "$DATA"
check "it starts with nothing" start_node
check "it serves everything" "$VARVE" pull "$root" "$WORK/out"
check "which is the same" diff -r "$tree" "$WORK/out"
same "nothing of it was sent again" 0 "$(metric 'varve_tier_uploaded_total{kind="blob"}')"
check "it stops, too" stop_server

[ -n "${HANG:-}" ] || finish
rm -rf "$DATA"
check "it starts once more with nothing" start_node
check "one file is read" "$VARVE" cat "$root" 7
check "the gateway is paused again" "$ceph_up" --pause "$ceph" rgw
check "what is here is served" "$VARVE" cat "$root" 7
check "what may be there alone is not called missing" says_later "$root" 8
echo new >"$WORK/new"
check "writes are taken" "$VARVE" put "$WORK/new"
check "the gateway goes on again" "$ceph_up" --resume "$ceph" rgw
check "what was written meanwhile gets there" until_there 1
check "and the rest is served again" "$VARVE" cat "$root" 8
check "it stops at last" stop_server
finish
