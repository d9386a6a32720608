#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# What an administrator does, with two nodes that follow each other: what is deleted on one goes on the other, too, and stays away over
# a restart of both; explain says on each why; results name who wrote them, on the node that copied them as well; a node that is drained
# is out of service and goes on; logs as JSON are JSON, and name requests that were slow.
# shellcheck source=/dev/null
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/nodes.bash"

make_nodes a b
relay a b
relay b a
follow a b
follow b a
flags a --log-format json --slow-call 300ms
check "a node starts" start a
check "and another" start b

# A field of the JSON on standard input: field.path.in.it
field() { python3 -c '
import json, sys
value = json.load(sys.stdin)
for key in sys.argv[1].split("."):
    value = value[int(key)] if isinstance(value, list) else value[key]
print(value)' "$1"; }
admin() { at "$1" --json admin "${@:2}"; }
said() { admin "$1" "${@:3}" | field "$2"; }
says() { [ "$(said "$1" "$2" "${@:4}")" = "$3" ]; }
status_of() {
    "$@" >/dev/null 2>&1
    echo $?
}

# ---- blobs
echo "what goes" >"$WORK/goes"
echo "what stays" >"$WORK/stays"
goes=$(at a put "$WORK/goes")
stays=$(at a put "$WORK/stays")
check "b gets what a has" caught_up b a 30
same "b has it" present "$(said b blob.verdict explain "$goes")"
same "a dry run tells what would go" 1 "$(said a would_go forget "$goes")"
same "and changes nothing" present "$(said a blob.verdict explain "$goes")"
same "a peer is asked for it" True "$(said a peers.0.has_blob explain "$goes" --peers)"
same "it is gone" "1 0" "$(said a gone forget "$goes" --yes) $(said a gone forget "$goes" --yes)"
same "a says that it was deleted" purged "$(said a blob.verdict explain "$goes")"
check "b hears of it" within 30 says b blob.verdict purged explain "$goes"
check "and knows where it was ordered" grep -qF "by way of $(peer_address b a)" <<<"$(said b blob.meaning explain "$goes")"
same "what nobody deleted stays" "present present" \
    "$(said a blob.verdict explain "$stays") $(said b blob.verdict explain "$stays")"
same "what was never there" "never seen" "$(said b blob.verdict explain "$(printf '0%.0s' {1..64})/5")"

# ---- results: of no bytes, over HTTP
result() { printf '%064x' "$1"; }
put_results() {
    local name=$1 from=$2 to=$3 number
    for ((number = from; number <= to; number++)); do
        http a -T /dev/null -o /dev/null -w '%{http_code}\n' "$name/ac/$(result "$number")" || return 1
    done | awk '$1 !~ /^20/ { wrong = 1 } END { exit wrong }'
}
check "results are put" put_results main 1 20
check "below it" put_results main/x 1 20
check "and beside it" put_results mainly 1 5
check "b gets them" caught_up b a 30
who=$(at b --instance main --json admin who "$(result 7)")
same "b knows who wrote one" "http main" "$(field tool <<<"$who") $(field instance_name <<<"$who")"
same "and where" "$(peer_address b a)" "$(field node_name <<<"$who")"
same "a dry run finds those of an instance and below" 40 "$(said a would_go forget --action-results --instances main)"
same "b finds the same" 40 "$(said b would_go forget --action-results --instances main)"
same "those of a writer" 45 "$(said a would_go forget --action-results --instances '*' --writer http)"
same "those of nobody" 0 "$(said a would_go forget --action-results --instances '*' --writer user:nobody)"
same "those that are old" 0 "$(said a would_go forget --action-results --instances '*' --before 1h)"
same "one by its action" 1 "$(at a --json --instance mainly admin forget --action-results "$(result 1)/0" --yes | field gone)"
same "they are gone" 40 "$(said a gone forget --action-results --instances main --yes)"
check "on b, too" within 30 says b would_go 0 forget --action-results --instances main
same "but not those beside" 4 "$(said b would_go forget --action-results --instances '*')"
same "explain says so" purged "$(at b --instance main/x --json admin explain "$(result 3)" | field action.verdict)"
same "and where there is one" "other instance" "$(at b --instance third --json admin explain "$(result 3)" | field action.verdict)"

# ---- it stays away
for node in a b; do
    check "$node stops" stop $node
    check "$node starts again" start $node
    same "the blob is still gone from $node" purged "$(said $node blob.verdict explain "$goes")"
    same "the results are still gone from $node" 4 "$(said $node would_go forget --action-results --instances '*')"
done
at b put "$WORK/goes" >/dev/null
same "what is stored anew is there" present "$(said b blob.verdict explain "$goes")"

# ---- out of service
ready() { http a -o /dev/null -w '%{http_code}' readyz; }
check "a is drained" at a admin drain "new disk"
same "it is not ready" 503 "$(ready)"
check "and says why" grep -q "^drained: .*new disk" <<<"$(http a readyz)"
same "but alive" 200 "$(http a -o /dev/null -w '%{http_code}' healthz)"
check "who still comes is served" at a put "$WORK/stays"
same "and counted" drained "$(said a state drain)"
check "it comes back" at a admin undrain
same "ready" 200 "$(ready)"
same "stats say so" serving "$(said a state stats)"

# ---- read-only
check "a is made read-only" at a admin read-only on "disks are copied"
check "status says so" grep -q read-only <<<"$(at a status)"
echo "what comes" >"$WORK/comes"
check "who would write is told why, and what to do" grep -q "disks are copied.*varve admin read-only off" <<<"$(at a put "$WORK/comes" 2>&1)"
same "and fails" 1 "$(status_of at a put "$WORK/comes")"
check "who reads is served" at a get "$stays"
same "wrong use of it" 2 "$(status_of at a admin read-only maybe)"
check "and back" at a admin read-only off
same "ready again" 200 "$(ready)"

# ---- exit statuses, and logs
same "nothing is there" 3 "$(status_of at a admin who "$(result 99)")"
same "wrong use" 2 "$(status_of at a admin forget)"
same "wrong time" 2 "$(status_of at a admin forget --action-results --instances main --before noon)"
same "wrong command" 2 "$(status_of at a admin forgive)"
(sleep 0.5 && printf '') | http a -T - -o /dev/null "main/slow/ac/$(result 1)"
check "a stops with status 0" stop a
check "b stops with status 0" stop b
check "every line of a's log is a JSON object" python3 -c '
import json, sys
events = [json.loads(line)["event"] for line in open(sys.argv[1])]
assert {"ready", "forgotten_by_order", "drained", "undrained", "read_only", "read_only_ended", "stopped"} <= set(events), events' "$WORK/a.log"
check "and tells of the request that was slow" python3 -c '
import json, sys
slow = [line for line in map(json.loads, open(sys.argv[1])) if line["event"] == "slow_call"]
assert any((line["method"], line["instance"]) == ("HTTP PUT ac", "main/slow") and line["duration_ms"] >= 300 for line in slow), slow' "$WORK/a.log"
finish_nodes
