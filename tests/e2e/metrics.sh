#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# What /metrics says after some requests is taken by those who are to read it: promtool, and the OpenMetrics parser of
# python3-prometheus-client, where they are installed; and it counts what was done, by instance.
# shellcheck source=/dev/null
. "$(dirname "$0")/lib.sh"

check 'starts' start_server
printf 'some bytes' >"$WORK/blob"
hash=$(sha256sum "$WORK/blob" | cut -c -64)
put() { curl -sf -T "$WORK/blob" "http://$HTTP/$1/cas/$hash"; }
check 'a blob is stored over HTTP' put team/a
check 'and in another instance' put 'odd"name'
curl -s -o /dev/null "http://$HTTP/team/a/cas/$hash"
curl -s -o /dev/null "http://$HTTP/team/a/ac/$hash"
check 'and by gRPC' "$VARVE" put "$WORK/blob"

# A request is counted when it is over, which may be a moment after its client has the answer.
for _ in $(seq 100); do
    curl -s "http://$HTTP/metrics" >"$WORK/text"
    [ "$(grep -cE '^varve_instance_requests_total.*(GET ac.*NOT_FOUND|Write.*OK)"} 1$' "$WORK/text")" != 2 ] || break
    sleep 0.1
done
curl -s -H 'Accept: application/openmetrics-text; version=1.0.0' "http://$HTTP/metrics" >"$WORK/open"
counts() { grep -qF "varve_instance_$1" "$WORK/text"; }
check 'a hit is counted' counts 'lookups_total{instance_name="team/a",method="HTTP GET cas",result="hit"} 1'
check 'a missing action result is counted' counts 'lookups_total{instance_name="team/a",method="HTTP GET ac",result="miss"} 1'
check 'with its code' counts 'requests_total{instance_name="team/a",method="HTTP GET ac",code="NOT_FOUND"} 1'
check 'bytes are counted' counts 'bytes_total{instance_name="team/a",method="HTTP PUT cas",direction="received"} 10'
check 'a name is escaped' counts 'requests_total{instance_name="odd\"name",method="HTTP PUT cas",code="OK"} 1'
check 'the empty name is one' counts 'requests_total{instance_name="",method="google.bytestream.ByteStream/Write",code="OK"} 1'
same 'OpenMetrics ends as it must' '# EOF' "$(tail -1 "$WORK/open")"

promtool=$(command -v promtool)
[ -z "$promtool" ] || check 'promtool finds nothing' promtool check metrics <"$WORK/text"
parse() {
    /usr/bin/python3 -c 'import sys; from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse
print(len(list(parse(sys.stdin.read()))), "families")' <"$WORK/open"
}
! /usr/bin/python3 -c 'import prometheus_client' 2>/dev/null || check 'the parser of OpenMetrics takes it' parse

check 'stops' stop_server
finish
