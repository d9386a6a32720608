#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The S3 driver against Ceph's radosgw, started for it on loopback: what a sound server can be asked, over HTTP; with SECONDS_EACH above
# 0 over TLS as well. Skipped where Ceph is not installed.
# shellcheck source=/dev/null
. "$(dirname "$0")/lib.sh"
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

check "radosgw starts" start_ceph
check "it does as the fake" env CK_RUN_CASE=real "$BUILD/tests/test_s3"
end_ceph
if [ "${SECONDS_EACH:-0}" != 0 ]; then
    check "radosgw starts with TLS" start_ceph --tls
    check "it does as the fake, over TLS" env CK_RUN_CASE=real "$BUILD/tests/test_s3"
    check "who is not vouched for is not talked to" bash -c "unset VARVE_TEST_S3_CA; ! CK_RUN_CASE=real '$BUILD/tests/test_s3'"
    end_ceph
fi
finish
