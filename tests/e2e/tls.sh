#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# TLS with real processes: certificates of our own making, gRPC by varve and HTTP by curl, the same certificate on both; who is
# refused; certificates that change while the server runs; client certificates; tokens and logins; files that are wrong.
# variants: asan
# shellcheck source=/dev/null
. "$(dirname "$0")/lib.sh"

command -v openssl >/dev/null || skip "no openssl"
cd "$WORK" || exit 1

# authority NAME: NAME.ca.pem. issue AUTHORITY NAME [DAYS]: NAME.pem and NAME.key
authority() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=$1" -keyout "$1.ca.key" \
        -out "$1.ca.pem" 2>/dev/null
}
issue() {
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/O=Example/CN=$2" -keyout "$2.key" -out "$2.csr" 2>/dev/null &&
        printf 'subjectAltName=DNS:localhost,DNS:%s.test,IP:127.0.0.1\n' "$2" >extensions &&
        openssl x509 -req -in "$2.csr" -CA "$1.ca.pem" -CAkey "$1.ca.key" -CAcreateserial -days "${3:-2}" \
            -extfile extensions -out "$2.pem" 2>/dev/null
}
authority one && authority two && issue one first && issue two second && issue one client && issue two stranger ||
    exit 1
use() { # use NAME: its certificate and key are the server's now
    cp "$1.key" server.key.new && cp "$1.pem" server.pem.new && mv server.key.new server.key && mv server.pem.new server.pem
}
use first

head -c 3000000 /dev/urandom >blob
HASH=$(sha256sum blob | cut -c 1-64)
NAME=$HASH/3000000

over() { # over CA [OPTION...]: varve's exit status
    local ca=$1
    shift
    "$VARVE" --tls-ca "$ca.ca.pem" --timeout 5 "$@" capabilities >why 2>&1
}
code() { # code CA PATH [OPTION...]: HTTP's
    local ca=$1 path=$2
    shift 2
    curl -s -o got -m 10 -w '%{http_code}' --cacert "$ca.ca.pem" "$@" "https://$HTTP$path"
}
refused() {
    ! "$@"
}
eventually() { # eventually COMMAND...: within 10 s
    local tenth
    for ((tenth = 0; tenth < 100; tenth++)); do
        "$@" && return 0
        sleep 0.1
    done
    return 1
}

# ---- the server's certificate
export HTTP_CA=$WORK/one.ca.pem
check "starts with TLS" start_server --reserve 0B --tls-cert "$WORK/server.pem" --tls-key "$WORK/server.key"
check "gRPC answers who trusts its authority" over one
check "grpcs:// is the same" "$VARVE" --server "grpcs://$SERVER" --tls-ca one.ca.pem capabilities
check "the name may be another" over one --tls-name first.test
check "another name is refused" refused over one --tls-name other.test
check "another authority is refused" refused over two
check "plaintext gRPC is refused" refused "$VARVE" --timeout 3 capabilities
check "grpc:// with TLS is a contradiction" refused "$VARVE" --server "grpc://$SERVER" --tls-ca one.ca.pem capabilities
check "push over TLS" "$VARVE" --tls-ca one.ca.pem put blob
same "HTTPS has the blob" 200 "$(code one "/cas/$HASH")"
check "bit for bit" cmp got blob
same "HTTPS takes one" 200 "$(head -c 2000000 blob >part && code one "/cas/$(sha256sum part | cut -c 1-64)" -T part)"
same "plaintext HTTP is refused" 000 "$(curl -s -o /dev/null -m 5 -w '%{http_code}' "http://$HTTP/readyz")"
same "another authority is refused over HTTPS" 000 "$(code two /readyz)"

# ---- it changes
use second
check "a new certificate is taken without a restart" eventually over two
check "the old authority is refused from then on" refused over one
same "over HTTPS too" 200 "$(code two "/cas/$HASH")"
cp first.key server.key # not the certificate's
sleep 2.5
check "a key that does not fit changes nothing" over two
check "and is told" grep -q 'event=tls_not_loaded.*is not the key of the certificate' "$SERVER_LOG"
echo junk >server.pem
kill -HUP "$SERVER_PID"
sleep 2.5
check "nor does a file that is none" over two
use first
kill -HUP "$SERVER_PID"
check "and the next that fits is taken" eventually over one
check "SIGHUP is told" grep -q event=reload "$SERVER_LOG"
code one /metrics >/dev/null
same "the metrics count them" 2 "$(sed -n 's/^varve_tls_reloads_total{result="ok"} //p' got)"
check "stops" stop_server

# ---- clients' certificates
check "starts with client certificates" start_server --reserve 0B --tls-cert "$WORK/server.pem" --tls-key "$WORK/server.key" \
    --tls-client-ca "$WORK/one.ca.pem"
check "gRPC with one" over one --tls-cert client.pem --tls-key client.key
check "gRPC without one is refused" refused over one
check "gRPC with a stranger's is refused" refused over one --tls-cert stranger.pem --tls-key stranger.key
same "probes need none" 200 "$(code one /healthz)"
same "the cache does" 401 "$(code one "/cas/$HASH")"
same "and takes it" 200 "$(code one "/cas/$HASH" --cert client.pem --key client.key)"
same "but not a stranger's" 401 "$(code one "/cas/$HASH" --cert stranger.pem --key stranger.key)"
check "stops" stop_server

# ---- tokens and logins
TOKEN=correct-horse-battery-staple-token
PASSWORD=s3cret-of-alice
printf 'alice:%s\n' "$(openssl passwd -6 "$PASSWORD")" >htpasswd
cat >access <<END
token reader $(printf %s "$TOKEN" | sha256sum | cut -c 1-64)
passwords htpasswd
certificate builder subject "CN=client,O=Example"
allow read to user:reader
allow read,write-cas,write-ac to user:alice,user:builder
END
check "starts with access rules" start_server --reserve 0B --tls-cert "$WORK/server.pem" --tls-key "$WORK/server.key" \
    --tls-client-ca "$WORK/one.ca.pem" --tls-client-auth optional --access "$WORK/access"
printf '%s\n' "$TOKEN" >token
printf 'alice:%s\n' "$PASSWORD" >login
head -c 100000 /dev/urandom >other
OTHER=$(sha256sum other | cut -c 1-64)
check "nobody is refused" refused over one
check "a token from a file" over one --token-file token
check "a token from the environment" env VARVE_TOKEN="$TOKEN" "$VARVE" --tls-ca one.ca.pem capabilities
check "a login from a file" over one --login-file login
check "a login from the environment" env VARVE_LOGIN="alice:$PASSWORD" "$VARVE" --tls-ca one.ca.pem capabilities
check "a certificate" over one --tls-cert client.pem --tls-key client.key
check "a reader reads" "$VARVE" --tls-ca one.ca.pem --token-file token get "$NAME" -o copy
check "a reader does not write" refused "$VARVE" --tls-ca one.ca.pem --token-file token put other
check "a writer does" "$VARVE" --tls-ca one.ca.pem --login-file login put other
same "HTTPS: nobody" 401 "$(code one "/cas/$OTHER")"
same "HTTPS: token" 200 "$(code one "/cas/$OTHER" -H "Authorization: Bearer $TOKEN")"
same "HTTPS: login" 200 "$(code one "/cas/$OTHER" -u "alice:$PASSWORD")"
same "HTTPS: certificate" 200 "$(code one "/cas/$OTHER" --cert client.pem --key client.key)"
same "HTTPS: a wrong login" 401 "$(code one "/cas/$OTHER" -u "alice:no")"
same "HTTPS: a reader's write" 403 "$(code one "/cas/$(printf x | sha256sum | cut -c 1-64)" -X PUT -d x -H "Authorization: Bearer $TOKEN")"
echo "allow read to anonymous" >>access
check "a changed rule counts without a restart" eventually over one
echo "allow nonsense" >>access
sleep 2.5
check "a broken one changes nothing" over one
check "and is told with its line" grep -q 'event=access_not_loaded.*line 7' "$SERVER_LOG"
check "stops" stop_server
check "the log shows no secret" refused grep -qF -e "$TOKEN" -e "$PASSWORD" "$SERVER_LOG"

# ---- files that are wrong: exit status 2, and what is wrong
wrong() { # wrong NAME PATTERN FLAG...
    local name=$1 pattern=$2
    shift 2
    "$VARVED" --data "$WORK/never" --listen 127.0.0.1:0 "$@" >why 2>&1 </dev/null
    same "$name: exit status" 2 $?
    check "$name: says why" grep -q -e "$pattern" why
    check "$name: makes no store" test ! -e "$WORK/never"
}
: >empty
use first
openssl req -x509 -key first.key -subj /CN=old -not_before 20200101000000Z -not_after 20200102000000Z -out old.pem 2>/dev/null ||
    faketime 2020-01-01 openssl req -x509 -key first.key -subj /CN=old -days 1 -out old.pem 2>/dev/null || rm -f old.pem
wrong "no certificate" 'tls-cert.*nothing.pem.*No such file' --tls-cert nothing.pem --tls-key server.key
wrong "an empty one" 'tls-cert.*empty is empty' --tls-cert empty --tls-key server.key
wrong "a key in its place" 'tls-cert.*no certificate' --tls-cert server.key --tls-key server.key
wrong "another's key" 'tls-key.*is not the key' --tls-cert server.pem --tls-key second.key
wrong "no authority in its file" 'tls-client-ca.*no certificate' --tls-cert server.pem --tls-key server.key --tls-client-ca server.key
[ ! -e old.pem ] || wrong "an expired one" 'tls-cert.*has expired' --tls-cert old.pem --tls-key first.key
wrong "a broken access file" 'line 7' --access access
wrong "an open door" 'allow-anonymous yes' --listen 0.0.0.0:0

finish
