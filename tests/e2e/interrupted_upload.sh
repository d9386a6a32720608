#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# An upload that is under way when the server is killed goes on with the server that comes up in its place, and ends exact; one
# larger than 4 GiB keeps its size, and the server's memory stays small.
# shellcheck source=/dev/null
. "$(dirname "$0")/lib.sh"

restart_server() { # on the same address, as a supervisor would
    "$VARVED" --data "$DATA" --listen "$SERVER" --http-listen "$HTTP" >>"$SERVER_LOG" 2>&1 &
    SERVER_PID=$!
    wait_ready
}

export VARVE_FAILPOINTS=upload_after_chunk=sleep:20 # so that the kill finds it under way
check "a server starts" start_server
head -c 120000000 /dev/urandom >"$WORK/blob"
digest=$(sha256sum "$WORK/blob" | cut -d ' ' -f 1)/120000000
"$VARVE" put "$WORK/blob" >"$WORK/put.out" 2>"$WORK/put.err" &
put=$!
sleep 1
check "nothing of an unfinished upload is visible" grep -q "^$digest$" <("$VARVE" missing "$digest")
kill_server
check "it starts again after SIGKILL" restart_server
wait $put
same "the upload that was under way ends well" 0 $?
same "and says what it stored" "$digest" "$(cat "$WORK/put.out")"
check "it can be read back" "$VARVE" get -o "$WORK/back" "$digest"
check "bit for bit" cmp "$WORK/blob" "$WORK/back"
rm -f "$WORK/blob" "$WORK/back"
check "the server stops" stop_server

unset VARVE_FAILPOINTS
bytes=$(((1 << 32) + 1))
check "a server starts for a large blob" start_server
truncate -s $bytes "$WORK/large"
large=$("$VARVE" --timeout 600 put "$WORK/large")
same "2^32 + 1 bytes keep their size" $bytes "${large#*/}"
same "and are read back" "${large%/*}" "$("$VARVE" --timeout 600 get "$large" | sha256sum | cut -d ' ' -f 1)"
peak_kib=$(awk '/^VmHWM/ { print $2 }' "/proc/$SERVER_PID/status")
check "with a server that stays below 512 MiB (it took $peak_kib KiB)" test "$peak_kib" -lt $((512 * 1024))
check "the server stops at last" stop_server
finish
