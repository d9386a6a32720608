#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The page on the HTTP port, in headless Chromium: what it shows, look-ups, keys alone, a phone's width, the dark, its content
# security policy, and that nothing that a client may name is ever markup (page.py). Screenshots go to $ARTIFACTS, if that is set.
# PAGE_SECONDS=200 lets requests go on for so long first: docs/images/ has the screenshots of such a run.
# shellcheck source=/dev/null
. "$(dirname "$0")/lib.sh"

for program in chromium chromedriver; do
    command -v $program >/dev/null || skip "$program is not installed (Debian: chromium, chromium-driver)"
done
shots=${ARTIFACTS:-$WORK/shots}
mkdir -p "$shots"
hash=$(printf 'of-somebody-with-an-odd-name' | sha256sum | cut -c -64)
cat >"$WORK/access" <<END
token <script>alert(2)</script> $hash
allow read,write-cas to anonymous
allow write-ac to anonymous in main
END

check 'starts' start_server --access "$WORK/access" --peer 127.0.0.1:1 --capacity 1GiB
DRIVER_PORT=$(free_port)
export DRIVER_PORT
while read -r word rest; do
    case $word in
    ok) ok "$rest" ;;
    not) not_ok "${rest#ok }" ;;
    *) echo "    $word $rest" ;;
    esac
done < <(HOME=$WORK /usr/bin/python3 tests/e2e/page.py "$HTTP" "$shots" "${PAGE_SECONDS:-0}" 2>&1; echo "ended $?")
check 'stops' stop_server
for shot in "$shots"/page-*.png; do
    size=$(stat -c %s "$shot")
    [ "$size" -lt 200000 ] || not_ok "$shot has $size bytes"
done

# Who may see nothing is told so, and not asked again and again.
rm -rf "$DATA"
echo 'allow read to users' >"$WORK/access"
check 'starts for those who are known' start_server --access "$WORK/access"
same 'the page is there for everybody' 200 "$(curl -s -o /dev/null -w '%{http_code}' "http://$HTTP/")"
same 'what it shows is not' 401 "$(curl -s -o /dev/null -w '%{http_code}' "http://$HTTP/page/state.json")"
check 'stops' stop_server
finish
