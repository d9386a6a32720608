#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A bucket on Ceph's radosgw, on loopback, for a script that has sourced lib.sh. Skips the script where Ceph is not installed. Ends when the
# script does, however that is.
#
#   start_ceph ARGUMENT...   starts it; sets S3_ENDPOINT, S3_BUCKET, S3_REGION and the keys, also for test_s3
#   end_ceph                 ends it
#   at_ceph ARGUMENT...      --pause rgw, --resume rgw
#   in_ceph COMMAND...       a command of Ceph's own: ceph, rados

# shellcheck disable=SC2034 # for who sources this
# shellcheck disable=SC2154 # lib.sh sets WORK
ceph_up=$PWD/../shared/accept/ceph-up.sh
[ -x "$ceph_up" ] || skip "no script that starts Ceph"
{ command -v radosgw && command -v ceph-osd; } >/dev/null || skip "Ceph is not installed"

ceph=''
end_ceph() { [ -z "$ceph" ] || "$ceph_up" --down "$ceph" >/dev/null 2>&1; ceph=''; }

start_ceph() {
    local assignments
    assignments=$("$ceph_up" --store memstore --parent "$WORK" "$@" 2>"$WORK/ceph.err") || { cat "$WORK/ceph.err"; return 1; }
    eval "$assignments"
    ceph=$CEPH_DIR
    export VARVE_TEST_S3_ENDPOINT=$S3_ENDPOINT VARVE_TEST_S3_REGION=$S3_REGION VARVE_TEST_S3_BUCKET=$S3_BUCKET
    export AWS_ACCESS_KEY_ID=$S3_ACCESS_KEY AWS_SECRET_ACCESS_KEY=$S3_SECRET_KEY
    [ -z "${S3_CA:-}" ] || export VARVE_TEST_S3_CA=$S3_CA
}

at_ceph() { "$ceph_up" "$1" "$ceph" "$2"; }
in_ceph() { "$1" -c "$ceph/ceph.conf" "${@:2}" 2>>"$WORK/ceph.err"; }
trap 'end_ceph; cleanup' EXIT
