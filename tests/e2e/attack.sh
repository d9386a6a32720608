#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# All attacks of attack.py at once, for $ATTACK_SECONDS (6), against a server with little memory: it lives, a polite client is
# served through both doors meanwhile and afterwards, its memory comes back, and the store is sound.
# shellcheck source=/dev/null
. "$(dirname "$0")/lib.sh"

check "starts" start_server --reserve 0B --grpc-memory 256MiB --request-memory 64MiB --buffers 64
head -c 3000000 /dev/urandom >"$WORK/blob"
check "stores" "$VARVE" put "$WORK/blob"
check "polite clients are served" /usr/bin/python3 tests/e2e/attack.py "$SERVER" "$HTTP" "$SERVER_PID" "${ATTACK_SECONDS:-6}"
sed 's/^/    /' "$WORK/said"
check "what was stored is there" "$VARVE" get "$(sha256sum "$WORK/blob" | cut -c 1-64)/3000000" -o "$WORK/copy"
check "bit for bit" cmp "$WORK/blob" "$WORK/copy"
check "stops" stop_server
check "nothing was found damaged" sh -c "! grep -e event=blob_damaged -e event=lane_failed '$SERVER_LOG'"
finish
