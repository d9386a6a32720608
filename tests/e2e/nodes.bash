#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Several servers that follow each other, for a script that has sourced lib.sh. All ends when the script does, however that is.
#
#   make_nodes NAME...             makes nodes; not started. The data of one is $WORK/NAME
#   flags NAME FLAG...             it has these flags besides its addresses, from its next start on
#   relay NAME OTHER [DELAY_MS BYTES_A_SECOND]   the way from NAME to OTHER, in relays alone slow if wanted: before follow
#   sever NAME OTHER               every connection on that way ends at once; new ones can be made. Relays alone
#   follow NAME OTHER...           NAME has the others as peers, from its next start on
#   start NAME                     starts it and waits until it is ready; 1 when that fails
#   end NAME, stop NAME            SIGKILL; SIGTERM and its exit status
#   address NAME                   HOST:PORT of its gRPC
#   at NAME COMMAND...             varve with --server
#   driver NAME load|check ...     tests/crash/driver against it, with journal $WORK/journal-J of --journal J
#   metric NAME SERIES             the value; without labels in SERIES the sum of all of that name; 0 when it is not there
#   cut_off NAME, let_in NAME      nothing gets from or to its peers any more, without a word to either side; and again
#   caught_up NAME OTHER SECONDS   waits until all that is durable at OTHER now is dealt with and durable at NAME; 1 when it is not
#   same_set NAME OTHER            every blob and action result of one is at the other, and nothing else is
#   within SECONDS COMMAND...      tries it until it ends with 0; 1 when it never does
#   finish_nodes                   finish, with the last words of each node when something was wrong
#
# With NETWORK=namespaces (what it is where that works) each node has a network of its own; with
# NETWORK=relays peers speak through processes that are stopped.

# shellcheck disable=SC2154 # lib.sh sets WORK, VARVED, VARVE, BUILD
# shellcheck disable=SC2317 # called by trap
declare -A node_pid=() node_host=() node_port=() node_http=() node_flags=() node_peers=() relay_pid=() relay_port=() relay_link=()
node_number=0
network_id=$$

leave() {
    local name
    for name in "${!node_pid[@]}"; do
        [ -z "${node_pid[$name]}" ] || kill -KILL "${node_pid[$name]}" 2>/dev/null
    done
    for name in "${!relay_pid[@]}"; do
        kill -KILL "${relay_pid[$name]}" 2>/dev/null
    done
    wait 2>/dev/null
    if [ "$NETWORK" = namespaces ]; then
        for name in "${!node_host[@]}"; do
            ip netns del "$(space "$name")" 2>/dev/null
        done
        ip link del "$bridge" 2>/dev/null
    fi
    cleanup
}
trap leave EXIT

bridge=vb$((network_id % 100000))
subnet=10.$((64 + network_id % 64)).$((network_id / 64 % 250))

namespaces_work() {
    [ "$(id -u)" = 0 ] && command -v ip >/dev/null && ip link add "$bridge" type bridge 2>/dev/null || return 1
    if ip netns add "v$network_id-try" 2>/dev/null && ip addr add "$subnet.1/24" dev "$bridge" && ip link set "$bridge" up; then
        ip netns del "v$network_id-try"
        return 0
    fi
    ip netns del "v$network_id-try" 2>/dev/null
    ip link del "$bridge"
    return 1
}
if [ "${NETWORK:-namespaces}" = namespaces ] && namespaces_work; then
    NETWORK=namespaces
else
    NETWORK=relays
fi
echo "network: $NETWORK"

space() { echo "v$network_id-$1"; }

make_nodes() {
    local name
    for name in "$@"; do
        make_node "$name" || skip "no network for node $name"
    done
}

flags() {
    local name=$1
    shift
    node_flags[$name]="$*"
}

make_node() {
    local name=$1
    node_number=$((node_number + 1))
    node_flags[$name]=''
    node_peers[$name]=''
    node_pid[$name]=''
    if [ "$NETWORK" = namespaces ]; then
        local inside=e0 outside=vn$((network_id % 10000))-$node_number
        node_host[$name]=$subnet.$((node_number + 1))
        node_port[$name]=8980 node_http[$name]=8981
        ip netns add "$(space "$name")" &&
            ip link add "$outside" type veth peer name $inside netns "$(space "$name")" &&
            ip link set "$outside" master "$bridge" up &&
            ip -n "$(space "$name")" addr add "${node_host[$name]}/24" dev $inside &&
            ip -n "$(space "$name")" link set $inside up &&
            ip -n "$(space "$name")" link set lo up || return 1
    else
        node_host[$name]=127.0.0.1
        node_port[$name]=$(free_port) node_http[$name]=$(free_port)
    fi
}

address() { echo "${node_host[$1]}:${node_port[$1]}"; }

follow() {
    local name=$1 other
    shift
    node_peers[$name]=''
    for other in "$@"; do
        node_peers[$name]+=" --peer $(peer_address "$name" "$other")"
    done
}

# What NAME calls OTHER.
peer_address() {
    local relay="$1 $2"
    if [ "$NETWORK" = namespaces ]; then
        address "$2"
        return
    fi
    if [ -z "${relay_port[$relay]:-}" ]; then
        echo "no relay from $1 to $2" >&2
        return 1
    fi
    echo "127.0.0.1:${relay_port[$relay]}"
}

# Before follow, which runs in no subshell but calls peer_address in one.
relay() {
    local relay="$1 $2"
    [ "$NETWORK" = relays ] && [ -z "${relay_port[$relay]:-}" ] || return 0
    relay_port[$relay]=$(free_port)
    relay_link[$relay]="${node_port[$2]} ${*:3}"
    start_relay "$relay"
}

start_relay() {
    # shellcheck disable=SC2086 # numbers
    python3 tests/e2e/relay.py "${relay_port[$1]}" ${relay_link[$1]} &
    relay_pid[$1]=$!
}

sever() {
    kill -KILL "${relay_pid["$1 $2"]}" || return 1
    wait "${relay_pid["$1 $2"]}" 2>/dev/null
    start_relay "$1 $2"
}

start() {
    local name=$1 tenth
    local command=("$VARVED" --data "$WORK/$name" --listen "$(address "$name")"
        --http-listen "${node_host[$name]}:${node_http[$name]}")
    [ "$NETWORK" != namespaces ] || command+=(--allow-anonymous yes)
    # Nothing is to be refused or evicted because the disk is used for other things, too.
    [[ ${node_flags[$name]} == *--capacity* ]] || command+=(--reserve 0B)
    # shellcheck disable=SC2206 # flags are words
    command+=(${node_flags[$name]} ${node_peers[$name]})
    mkdir -p "$WORK/$name"
    if [ "$NETWORK" = namespaces ]; then
        ip netns exec "$(space "$name")" "${command[@]}" >>"$WORK/$name.log" 2>&1 &
    else
        "${command[@]}" >>"$WORK/$name.log" 2>&1 &
    fi
    node_pid[$name]=$!
    for ((tenth = 0; tenth < ${READY_SECONDS:-30} * 10; tenth++)); do
        if ! kill -0 "${node_pid[$name]}" 2>/dev/null; then
            node_pid[$name]=''
            break
        fi
        [ "$(http "$name" -o /dev/null -w '%{http_code}' readyz)" != 200 ] || return 0
        sleep 0.1
    done
    echo "$name is not ready; its last words:" >&2
    tail -20 "$WORK/$name.log" >&2
    return 1
}

http() {
    local name=$1 page=${!#}
    curl -s -m 5 "${@:2:$#-2}" "http://${node_host[$name]}:${node_http[$name]}/$page" 2>/dev/null
}

end() {
    kill -KILL "${node_pid[$1]}" || return 1
    wait "${node_pid[$1]}" 2>/dev/null
    node_pid[$1]=''
}

stop() {
    local status
    kill -TERM "${node_pid[$1]}" || return 1
    wait "${node_pid[$1]}"
    status=$?
    node_pid[$1]=''
    return $status
}

at() {
    local name=$1
    shift
    "$VARVE" --server "$(address "$name")" "$@"
}

# driver NAME COMMAND JOURNAL [OPTION...]
driver() {
    local name=$1 what=$2 journal=$3
    shift 3
    "$BUILD/tests/crash/driver" "$what" --server "$(address "$name")" --journal "$WORK/journal-$journal" "$@"
}

metric() {
    http "$1" metrics | awk -v series="$2" '
        { name = $1; if (index(series, "{") == 0) sub(/\{.*/, "", name) }
        name == series { sum += $2 }
        END { printf "%.0f\n", sum }'
}

cut_state() {
    local state=$1 name=$2 relay other ok=1
    if [ "$NETWORK" = namespaces ]; then
        # What goes to a machine that is not there is lost. The clients of the test are outside, and go on.
        for other in "${!node_host[@]}"; do
            [ "$other" = "$name" ] && continue
            neighbour "$state" "$name" "$other" && neighbour "$state" "$other" "$name" || return 1
        done
        return 0
    fi
    for relay in "${!relay_pid[@]}"; do
        [[ " $relay " == *" $name "* ]] || continue
        kill "-$([ "$state" = cut ] && echo STOP || echo CONT)" "${relay_pid[$relay]}" || ok=0
    done
    [ $ok = 1 ]
}
neighbour() {
    if [ "$1" = cut ]; then
        ip -n "$(space "$2")" neigh replace "${node_host[$3]}" lladdr 02:00:00:00:00:01 dev e0 nud permanent
    else
        ip -n "$(space "$2")" neigh del "${node_host[$3]}" dev e0
    fi
}
cut_off() { cut_state cut "$1"; }
let_in() { cut_state join "$1"; }

# Sequence numbers of a node's log, and how far another has them, as "small large".
durable() {
    at "$1" --json status | python3 -c '
import json, sys
lanes = {lane["lane"]: lane["durable_seq"] for lane in json.load(sys.stdin)["lanes"]}
print(lanes.get("small", 0), lanes.get("large", 0))'
}
applied() {
    at "$1" --json status | python3 -c '
import json, sys
for peer in json.load(sys.stdin).get("peers", []):
    if peer["address"] == sys.argv[1]:
        lanes = {lane["lane"]: lane["applied_seq"] for lane in peer["lanes"]}
        print(lanes.get("small", 0), lanes.get("large", 0))' "$(peer_address "$1" "$2")"
}
has_applied() {
    local small=0 large=0
    read -r small large < <(applied "$1" "$2")
    [ "${small:-0}" -ge "$3" ] && [ "${large:-0}" -ge "$4" ]
}
caught_up() {
    local small large
    read -r small large < <(durable "$2")
    [ -n "$large" ] || return 1
    within "$3" has_applied "$1" "$2" "$small" "$large" && return 0
    echo "$1 has $(applied "$1" "$2") of $2's $small $large"
    at "$1" status
    return 1
}

same_set() { at "$1" replicate --to "$(address "$2")" --all --compare --action-results; }

within() {
    local until=$((SECONDS + $1))
    shift
    while ! "$@"; do
        [ $SECONDS -lt $until ] || return 1
        sleep 0.2
    done
}

finish_nodes() {
    local name
    # shellcheck disable=SC2154 # lib.sh's
    if [ "$checks_failed" != 0 ]; then
        for name in "${!node_host[@]}"; do
            echo "--- $name"
            tail -20 "$WORK/$name.log" 2>/dev/null
        done
    fi
    finish
}
