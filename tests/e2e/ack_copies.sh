#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A node that acknowledges what another has on disk too is killed under load, and its disk is gone: every blob and action result
# that was acknowledged is on the other. It comes back empty, gets all of it from the other, and loses its disk again.
#
#   KILLS=5                  100 by hand
# shellcheck source=/dev/null
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/nodes.bash"
KILLS=${KILLS:-5}

make_nodes a b
flags a --ack-copies 1
relay a b && relay b a
follow a b
follow b a
check "the other node starts" start b
acknowledged_before=0
for ((kill = 1; kill <= KILLS; kill++)); do
    start a || not_ok "a starts with an empty disk, the time $kill"
    # Its disk is a new one: b has to find that out before anything can be acknowledged.
    driver a load copies --seed "$((SEED_BASE=${SEED_BASE:-$RANDOM}, SEED_BASE + kill))" --batches 4 --streams 2 --actions 2 --broken 1 \
        --seconds 600 --blob-bytes 20000 >"$WORK/load" 2>&1 &
    load=$!
    sleep "1.$((RANDOM % 10))$((RANDOM % 10))"
    end a
    wait $load
    rm -rf "${WORK:?}/a"
    acknowledged=$(grep -c . "$WORK/journal-copies")
    [ "$acknowledged" -gt "$acknowledged_before" ] || not_ok "something was acknowledged before kill $kill: $(cat "$WORK/load")"
    acknowledged_before=$acknowledged
    check "after kill $kill of $KILLS all that was acknowledged is on b" driver b check copies
    sed -n 1p "$WORK/said"
done
check "a starts, empty" start a
check "and catches up" caught_up a b 120
# What no follower has confirmed counts as missing at a, wherever it came from: b, which may be pausing after a refused connection, has to have asked.
check "and b has all of that" caught_up b a 30
check "all that was ever acknowledged is there" driver a check copies
check "the sets agree" same_set a b
check "and so seen from the other" same_set b a

stop a
flags a --ack-copies 1 --ack-copies-timeout 1s
check "a starts with less patience" start a
end b
echo "not on two disks" >"$WORK/value"
hash=$(sha256sum "$WORK/value" | cut -d ' ' -f 1)
put_by_http() { http a -o "$WORK/said" -w '%{http_code}' -T "$WORK/value" "cas/$hash"; }
same "what no other node takes is refused over HTTP" 503 "$(put_by_http)"
same "and again, though it is stored here by now" 503 "$(put_by_http)"
check "b comes back" start b
is_taken() { [ "$(put_by_http)" = 200 ]; }
check "and then it is taken" within 30 is_taken
stop a
stop b
finish_nodes
