#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# variants: asan
#
# How varved starts, refuses to start, and stops: exit statuses, what it says, one process a data directory, ports that
# are taken, signals, a shortage of descriptors.
# shellcheck source=/dev/null
. "$(dirname "$0")/lib.sh"

# run COMMAND...: its output in $WORK/out, what it said to a person in $err, its status in $status
run() {
    timeout 60 "$@" >"$WORK/out" 2>"$WORK/err" </dev/null
    status=$?
    err=$(cat "$WORK/err")
}
says() {
    grep -qF -- "$1" <<<"$err"
}
# Besides the LOCK that was taken to look.
has_only_its_file() {
    [ "$(ls -A --ignore=LOCK "$1")" = file ] && [ "$(cat "$1/file")" = "someone else's" ]
}

# ---- the configuration
run "$VARVED"
same "without a data directory the configuration is wrong" 2 $status
check "and it says what is missing" says '--data DIR is needed'
run "$VARVED" --data "$WORK/x" --buffers 1
same "a value out of range is wrong" 2 $status
check "and it says what is accepted" says 'option buffers, value "1" from --buffers: it is out of range (accepted: 8 to 65536)'
run env VARVE_KEEPALIVE=often "$VARVED" --data "$WORK/x"
same "a wrong variable is wrong" 2 $status
check "and is named" says 'VARVE_KEEPALIVE'
run env VARVE_FAILPOINTS=nowhere=kill "$VARVED" --data "$WORK/x" --listen 127.0.0.1:0
same "an unknown fail point is wrong" 2 $status
for flag in --capacty=10GiB --peers=127.0.0.1:1 --nothing; do
    run "$VARVED" --data "$WORK/x" $flag
    same "$flag is no option" 2 $status
done
run "$VARVED" --data "$WORK/no/x" --check-config
same "check-config wants the parent of the data directory" 2 $status
check "and names it" says "$WORK/no"
printf 'data = %s/y # here\ninstance = a, b\n' "$WORK" >"$WORK/conf"
run "$VARVED" --config "$WORK/conf" --check-config --buffers 77
same "check-config of a good one is 0" 0 $status
check "and prints what is in force" grep -qx 'buffers = 77' "$WORK/out"
check "the file included" grep -qx 'instance = a, b' "$WORK/out"
check "and makes nothing" test ! -e "$WORK/y"
run "$VARVED" --help
same "help is 0" 0 $status
check "help goes to standard output" grep -q -- '--small-segment-size' "$WORK/out"
run "$VARVED" --version
check "version" grep -qx 'varved [0-9.]*' "$WORK/out"

# ---- start and stop
check "the server starts" start_server
[ -n "$SERVER_PID" ] || finish
check "one line says that it is ready" grep -q "event=ready .*listen=\"$SERVER\" port=${SERVER##*:}" "$SERVER_LOG"
same "only one" 1 "$(grep -c event=ready "$SERVER_LOG")"
http() {
    curl -s -m 10 "$@"
}
same "healthz" ok "$(http "http://$HTTP/healthz")"
same "readyz" serving "$(http "http://$HTTP/readyz")"
check "metrics" grep -q '^varve_blobs_written_total 0' <(http "http://$HTTP/metrics")

run "$VARVED" --data "$DATA" --listen 127.0.0.1:0
same "a second process on the same data does not start" 1 $status
check "and says so" says 'event=start_failed'
run "$VARVED" --data "$WORK/other" --listen "$SERVER"
same "a port that is taken" 1 $status
check "is named with its reason" says "cannot listen on $SERVER: Address already in use"
run "$VARVED" --data "$WORK/other" --listen 127.0.0.1:0 --http-listen "$HTTP"
same "an HTTP port that is taken" 1 $status
check "likewise" says "cannot listen on $HTTP: Address already in use"
mkdir "$WORK/full" && echo "someone else's" >"$WORK/full/file"
run "$VARVED" --data "$WORK/full" --listen 127.0.0.1:0
same "a directory that is no store" 1 $status
check "stays as it is" has_only_its_file "$WORK/full"
same "the first one still serves" serving "$(http "http://$HTTP/readyz")"

stop_server
same "SIGTERM ends it with 0" 0 $?
check "and it says so" grep -q 'event=stopped' "$SERVER_LOG"
check "it starts again" start_server
kill -INT "$SERVER_PID"
wait "$SERVER_PID"
same "SIGINT ends it with 0" 0 $?
SERVER_PID=''

# ---- calls in flight: an upload that goes on for ever, made by curl
upload_forever() {
    mkfifo "$WORK/body-$1"
    curl -s --http2-prior-knowledge -X POST -T "$WORK/body-$1" -H 'content-type: application/grpc' -H 'te: trailers' \
        -o "$WORK/answer-$1" "http://$SERVER/google.bytestream.ByteStream/Write" &
    UPLOAD=$!
    exec 9>"$WORK/body-$1"
    printf '\0' >&9
    for _ in $(seq 100); do
        [ "$(http "http://$HTTP/metrics" | sed -n 's/^varve_calls_live //p')" != 1 ] || return 0
        sleep 0.1
    done
    return 1
}
end_upload() {
    exec 9>&-
    kill "$UPLOAD" 2>/dev/null
    wait "$UPLOAD" 2>/dev/null
}
now_ms() {
    date +%s%3N
}

check "the server starts with a short drain time" start_server --drain-time 500ms
check "a call is in progress" upload_forever 1
started=$(now_ms)
stop_server
same "the drain time over, it ends with 0" 0 $?
took=$(($(now_ms) - started))
check "after the drain time ($took ms)" test $took -ge 450
check "and no later than needed" test $took -lt 15000
check "the log says what was cancelled" grep -q 'event=drain_time_over calls_cancelled=1' "$SERVER_LOG"
end_upload

check "the server starts with a long drain time" start_server --drain-time 1h
check "a call is in progress again" upload_forever 2
kill -TERM "$SERVER_PID"
for _ in $(seq 100); do
    [ "$(http "http://$HTTP/readyz")" != draining ] || break
    sleep 0.1
done
same "readyz says that it drains" draining "$(http "http://$HTTP/readyz")"
same "and is 503" 503 "$(http -o /dev/null -w '%{http_code}' "http://$HTTP/readyz")"
kill -TERM "$SERVER_PID"
wait "$SERVER_PID"
same "a second signal ends it at once with 1" 1 $?
SERVER_PID=''
end_upload

# ---- few descriptors: connections are shed, the port lives
# The server raises its soft limit to the hard one, so that one is lowered: for it alone, by prlimit.
cat >"$WORK/limited" <<END
#!/bin/bash
exec prlimit --nofile=200:200 "$VARVED" "\$@"
END
chmod +x "$WORK/limited"
whole=$VARVED
VARVED=$WORK/limited
check "it starts with 200 descriptors" start_server
VARVED=$whole
[ -n "$SERVER_PID" ] || finish
for _ in $(seq 5); do
    clients=()
    for _ in $(seq 60); do
        (exec 8<>"/dev/tcp/127.0.0.1/${SERVER##*:}" && sleep 2) 2>/dev/null &
        clients+=($!)
    done
    sleep 0.2
done
for _ in $(seq 100); do
    shed=$(http "http://$HTTP/metrics" | sed -n 's/^varve_connections_shed_total //p')
    [ "${shed:-0}" = 0 ] || break
    sleep 0.1
done
check "connections were shed ($shed)" test "${shed:-0}" -gt 0
kill "${clients[@]}" 2>/dev/null
sleep 3
# shellcheck disable=SC2153 # lib.sh sets both
run "$VARVE" --server "$SERVER" capabilities
same "and the port still serves" 0 $status
stop_server
same "it ends well" 0 $?
finish
