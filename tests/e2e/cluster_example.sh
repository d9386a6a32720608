#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# deploy/examples/cluster does what it says: start-local starts three nodes before a bucket; what is stored at one is given out by another; a
# node whose disk is lost serves everything; all three disks lost, the bucket has it all. The configuration, the rules and the policy are what
# varved and JSON's readers take. Skipped where Ceph is not installed.
# shellcheck source=/dev/null
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/ceph.bash"
EXAMPLE=deploy/examples/cluster
local_pid=''
stop_local() {
    [ -z "$local_pid" ] || { kill -TERM "$local_pid" && wait "$local_pid"; } 2>/dev/null
    local_pid=''
}
trap 'stop_local; end_ceph; cleanup' EXIT
within() {
    local until=$((SECONDS + $1))
    shift
    while ! "$@"; do
        [ $SECONDS -lt $until ] || return 1
        sleep 0.2
    done
}

check "the rules are JSON" python3 -m json.tool $EXAMPLE/lifecycle.json /dev/null
check "the policy is, too" python3 -m json.tool $EXAMPLE/policy.json /dev/null
check "radosgw starts" start_ceph
mkdir -p "$WORK/etc/tls"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=cache-a" -keyout "$WORK/etc/tls/node.key" \
    -out "$WORK/etc/tls/node.crt" 2>"$WORK/openssl"
cp "$WORK/etc/tls/node.crt" "$WORK/etc/tls/ca.crt"
cp $EXAMPLE/access "$WORK/etc/access"
printf '[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n' "$S3_ACCESS_KEY" "$S3_SECRET_KEY" >"$WORK/etc/bucket"
chmod 600 "$WORK/etc/bucket"
sed -e "/^peer = .*cache-a/d; s|/etc/varve|$WORK/etc|; s|/var/lib/varve|$WORK/conf-data|; s|https://s3.example|$S3_ENDPOINT|" \
    $EXAMPLE/varved.conf >"$WORK/varved.conf"
check "the configuration is one" "$VARVED" --config "$WORK/varved.conf" --check-config

port=$(free_port)
start_local() {
    AWS_REGION=$S3_REGION VARVED=$VARVED PORT=$port $EXAMPLE/start-local "$S3_ENDPOINT" "$S3_BUCKET" "$WORK/local" >>"$WORK/said" 2>&1 &
    local_pid=$!
    within 20 up 127.0.0.1 && within 20 up 127.0.0.2 && within 20 up 127.0.0.3
}
up() { "$VARVE" --server "$1:$port" status >"$WORK/out" 2>&1; }
at() { "$VARVE" --server "$1:$port" "${@:2}"; }
there() { at "$1" status 2>&1 | grep -q 'bucket .*small [1-9][0-9]*, 0 records behind, large [0-9]*, 0 behind'; }

check "start-local starts three" start_local
tree=$WORK/tree
mkdir "$tree"
for number in $(seq 50); do head -c $((number * 100)) /dev/urandom >"$tree/$number"; done
root=$(at 127.0.0.1 push "$tree" 2>"$WORK/push" | tail -1)
check "what is stored at one is given out by another" at 127.0.0.3 pull "$root" "$WORK/at-c"
check "byte for byte" diff -r "$tree" "$WORK/at-c"
check "varve status tells when the bucket has all" within 60 there 127.0.0.1
stop_local
rm -rf "$WORK/local/b"
check "they start again, one without its disk" start_local
check "it serves everything" at 127.0.0.2 pull "$root" "$WORK/at-b"
check "which is the same" diff -r "$tree" "$WORK/at-b"
stop_local
rm -rf "$WORK/local"
check "they start again, all without their disks" start_local
check "any of them serves everything" at 127.0.0.3 pull "$root" "$WORK/again"
check "which is still the same" diff -r "$tree" "$WORK/again"
# shellcheck disable=SC2154 # lib.sh's
[ "$checks_failed" = 0 ] || tail -n 20 "$WORK"/local/*.log "$WORK/said"
stop_local
finish
