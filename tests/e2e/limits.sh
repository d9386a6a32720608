#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Limits of users with real processes: both doors draw on one account, a refusal tells its numbers and when to try again, lines of the
# access file say otherwise for single users and are read again while the server runs, refusals are counted.
# shellcheck source=/dev/null
. "$(dirname "$0")/lib.sh"

cd "$WORK" || exit 1
echo a-token-that-is-long-enough >token
printf 'token ci %s\nlimit calls=100 to user:ci\nlimit bytes-per-second=1 to anonymous\n' \
    "$(printf %s "$(cat token)" | sha256sum | cut -c 1-64)" >limits
printf 'allow read,write-cas,write-ac to anonymous\n' | cat limits - >access
head -c 1000 /dev/urandom >blob
HASH=$(sha256sum blob | cut -c 1-64)

code() { # code [OPTION...]: of a GET of the blob
    curl -s -D head -o got -m 10 -w '%{http_code}' "$@" "http://$HTTP/cas/$HASH"
}
refused() {
    ! "$@"
}

check "starts" start_server --reserve 0B --access "$WORK/access"
check "somebody without a limit stores" "$VARVE" --token-file token put blob
same "somebody with one reads, at first" 200 "$(code)"
same "who is refused afterwards, over HTTP with 429" 429 "$(code)"
check "and is told when to come again" grep -qi '^retry-after: [1-9]' head
check "and why" grep -q 'more than 1 bytes a second of this address (bytes-per-second); try again in' got
check "gRPC draws on the same account" refused "$VARVE" --timeout 1 capabilities
same "who has no limit is served" 200 "$(code -H "Authorization: Bearer $(cat token)")"
same "so are pages" 200 "$(curl -s -o /dev/null -m 10 -w '%{http_code}' "http://$HTTP/healthz")"
check "refusals are logged" grep -q 'event=limited user="anonymous"' "$SERVER_LOG"
curl -s -m 10 -H "Authorization: Bearer $(cat token)" "http://$HTTP/metrics" >metrics
check "and counted" grep -q '^varve_limited_total{reason="bytes_per_second"} [1-9]' metrics

printf 'allow read,write-cas,write-ac to anonymous\n' >access
kill -HUP "$SERVER_PID"
served() {
    local tenth
    for ((tenth = 0; tenth < 100; tenth++)); do
        code >/dev/null && [ "$(code)" = 200 ] && [ "$(code)" = 200 ] && [ "$(code)" = 200 ] && return 0
        sleep 0.1
    done
    return 1
}
check "without the line there is no limit" served
check "stops" stop_server

check "starts with flags" start_server --reserve 0B --user-bytes-per-second 1KiB --allow-anonymous yes
head -c 200000 /dev/urandom >large
LARGE=$(sha256sum large | cut -c 1-64)
same "what has begun is not held up" 200 "$(curl -s -o /dev/null -m 10 -w '%{http_code}' -T large "http://$HTTP/cas/$LARGE")"
same "and is a debt afterwards" 429 "$(code)"
check "that is told in bytes" grep -q 'more than 1024 bytes a second' got
check "stops" stop_server
finish
