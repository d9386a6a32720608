#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# deploy/examples/pair does what it says: start-local starts two nodes that follow each other; the configurations, with certificates,
# make two that follow each other over mutual TLS, let anybody read, and nobody write who shows no token.
# shellcheck source=/dev/null
. "$(dirname "$0")/lib.sh"
EXAMPLE=deploy/examples/pair
pids=()
leave() {
    [ ${#pids[@]} = 0 ] || kill -TERM "${pids[@]}" 2>/dev/null
    wait
    cleanup
}
trap leave EXIT
within() {
    local until=$((SECONDS + $1))
    shift
    while ! "$@"; do
        [ $SECONDS -lt $until ] || return 1
        sleep 0.2
    done
}

port=$(free_port)
VARVED=$VARVED PORT=$port $EXAMPLE/start-local "$WORK/local" >"$WORK/said-local" 2>&1 &
pids=($!)
up() { "$VARVE" --server "$1:$port" status >"$WORK/out" 2>&1; }
check "start-local starts one" within 20 up 127.0.0.1
check "and another" within 20 up 127.0.0.2
head -c 100000 /dev/urandom >"$WORK/blob"
digest=$("$VARVE" --server "127.0.0.1:$port" put "$WORK/blob")
check "what is stored at one is given out by the other" "$VARVE" --server "127.0.0.2:$port" get "$digest" -o "$WORK/got"
check "byte for byte" cmp "$WORK/blob" "$WORK/got"
kill -TERM "${pids[0]}"
wait "${pids[0]}"
same "it stops both" 0 $?
pids=()
up 127.0.0.1 || up 127.0.0.2
check "and none is left" test $? != 0

openssl_quiet() { openssl "$@" >>"$WORK/openssl" 2>&1; }
make_tls() {
    local one
    openssl_quiet req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=pair" -keyout "$WORK/ca.key" \
        -out "$WORK/ca.crt" || return 1
    for one in a b; do
        mkdir -p "$WORK/etc-$one/tls" && cp "$WORK/ca.crt" "$WORK/etc-$one/tls/" &&
            openssl_quiet req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=cache-$one" \
                -keyout "$WORK/etc-$one/tls/node.key" -out "$WORK/$one.csr" &&
            openssl_quiet x509 -req -days 2 -in "$WORK/$one.csr" -CA "$WORK/ca.crt" -CAkey "$WORK/ca.key" -CAcreateserial \
                -extfile <(echo "subjectAltName=DNS:cache-$one.example,DNS:localhost,IP:127.0.0.1") \
                -out "$WORK/etc-$one/tls/node.crt" || return 1
        cp $EXAMPLE/access "$WORK/etc-$one/access"
    done
}
check "two certificates are made" make_tls
token=$(openssl rand -hex 32)
echo "$token" >"$WORK/token"
declare -A port_of=([a]=$(free_port) [b]=$(free_port)) http_of=([a]=$(free_port) [b]=$(free_port)) other=([a]=b [b]=a)
for name in a b; do
    # As a person would, who follows what the file says.
    sed -i "s/^#token ci .*/token ci $(printf %s "$token" | sha256sum | cut -c 1-64)/; s/^#allow/allow/" "$WORK/etc-$name/access"
    sed -e "s|/etc/varve|$WORK/etc-$name|; s|/var/lib/varve|$WORK/data-$name|" \
        -e "s|^listen = .*|listen = 127.0.0.1:${port_of[$name]}|; s|^http-listen = .*|http-listen = 127.0.0.1:${http_of[$name]}|" \
        -e "s|cache-${other[$name]}.example:8980|127.0.0.1:${port_of[${other[$name]}]}|" $EXAMPLE/$name.conf >"$WORK/$name.conf"
    check "the configuration of $name is one" "$VARVED" --config "$WORK/$name.conf" --check-config
    "$VARVED" --config "$WORK/$name.conf" >"$WORK/$name.log" 2>&1 &
    pids+=($!)
done
secure() { "$VARVE" --server "127.0.0.1:${port_of[$1]}" --tls --tls-ca "$WORK/ca.crt" "${@:2}"; }
may_read() { secure "$1" capabilities >"$WORK/out" 2>&1; }
check "a answers" within 20 may_read a
check "b answers" within 20 may_read b
secure a put "$WORK/blob" >"$WORK/out" 2>&1
check "nobody writes without a token" test $? != 0
digest=$(secure a --token-file "$WORK/token" put "$WORK/blob")
same "who shows it does" 0 $?
followed() { [ "$(grep -c event=peer_connected "$WORK/a.log")" -ge 1 ] && [ "$(grep -c event=peer_connected "$WORK/b.log")" -ge 1 ]; }
check "they follow each other over mutual TLS" within 20 followed
check "and give out what the other has to anybody" secure b get "$digest" -o "$WORK/got"
check "byte for byte" cmp "$WORK/blob" "$WORK/got"
secure b replicate --to "127.0.0.1:${port_of[a]}" --all >"$WORK/out" 2>&1
check "but the log is for nodes alone" test $? != 0
logged() { [ "$(grep -c "event=$1 " "$WORK/a.log")" -ge "$2" ]; }
cp "$WORK/a.conf" "$WORK/a.conf.whole"
sed -i '/^peer = /d' "$WORK/a.conf"
kill -HUP "${pids[0]}"
check "a peer that is taken out of the file is left at SIGHUP" within 10 logged peer_removed 1
cp "$WORK/a.conf.whole" "$WORK/a.conf"
kill -HUP "${pids[0]}"
check "and followed again when it is back in it" within 10 logged peer_connected 2
# As the file says for nodes that have no certificates that the other knows.
kill -TERM "${pids[0]}"
wait "${pids[0]}"
same "a stops with status 0" 0 $?
openssl rand -hex 32 >"$WORK/etc-a/peer-token"
sed -i "/^certificate cache-a /d; s/^#token node .*/token node $(head -1 "$WORK/etc-a/peer-token" | tr -d '\n' | sha256sum | cut -c 1-64)/" \
    "$WORK/etc-b/access"
sed -i 's/^group nodes .*/group nodes node cache-b/' "$WORK/etc-b/access"
sed -i 's/^#peer-token-file/peer-token-file/' "$WORK/a.conf"
check "with a token the configuration of a is one, too" "$VARVED" --config "$WORK/a.conf" --check-config
"$VARVED" --config "$WORK/a.conf" >>"$WORK/a.log" 2>&1 &
pids[0]=$!
check "and b lets a follow it for its token" within 20 logged peer_connected 3
for pid in "${pids[@]}"; do
    kill -TERM "$pid"
    wait "$pid"
    same "a node stops with status 0" 0 $?
done
pids=()
# shellcheck disable=SC2154 # lib.sh's
[ "$checks_failed" = 0 ] || tail -n 20 "$WORK/a.log" "$WORK/b.log" "$WORK/said-local"
finish
