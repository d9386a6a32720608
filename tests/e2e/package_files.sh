#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# What packages say of the two programs is made from what they say of themselves: the configuration file has every option with
# its default, the manual pages name each and are what man can read, the completions complete.
# shellcheck source=/dev/null
. "$(dirname "$0")/lib.sh"

made=$WORK/made
check "the pages are made" deploy/pages/generate "$VARVED" "$VARVE" "$made"
[ -e "$made/varve.bash" ] || finish

# ---- the configuration file
"$VARVED" --data /var/lib/varve --check-config >"$WORK/defaults"
# What is commented out, without what the package sets itself.
sed -nE 's/^#([a-z-]+ =.*)$/\1/p' "$made/varved.conf" >"$WORK/uncommented"
same "with every comment taken away it says what is the default" "$(cat "$WORK/defaults")" \
    "$(env -i "$VARVED" --config "$WORK/uncommented" --data /var/lib/varve --check-config 2>&1)"
options() {
    "$VARVED" --help | sed -nE 's/^  --([a-z][a-z0-9-]*) [A-Z].*/\1/p' | grep -vx config | sort
}
same "it has every option, once" "$(options | grep -vx data)" "$(sed 's/ =.*//' "$WORK/uncommented" | sort)"
sed -E 's/^#.*//; /^$/d' "$made/varved.conf" >"$WORK/packaged"
same "the package sets" "capacity data http-listen " "$(sed 's/ =.*//' "$WORK/packaged" | sort | tr '\n' ' ')"
check "what varved takes" env -i "$VARVED" --config "$made/varved.conf" --check-config
check "the store is where the unit lets it write" grep -qx 'data = /var/lib/varve' "$WORK/packaged"
check "and that is what the unit makes" grep -qx 'StateDirectory=varve' deploy/debian/varve-server.varved.service
check "nobody but this machine is let in" test "$(grep -c '127.0.0.1' "$WORK/packaged")" = "$(grep -c listen "$WORK/packaged")"
# The unit waits for longer than the server may take.
seconds() { sed -n "s/^$1 *= *\([0-9]*\)s*$/\1/p" "$2"; }
check "the unit waits for the drain time and a minute" test \
    "$(seconds TimeoutStopSec deploy/debian/varve-server.varved.service)" -gt "$(($(seconds drain-time "$WORK/uncommented") + 60))"

# ---- manual pages
for page in varved.8 varved.conf.5 varve.1; do
    check "$page is for this version" grep -qF "varve $("$VARVED" --version | cut -d' ' -f2)" "$made/$page"
    if command -v mandoc >/dev/null; then
        check "$page is good for mandoc" mandoc -T lint -W warning "$made/$page"
    fi
    if command -v man >/dev/null && man -l "$made/$page" >/dev/null 2>&1; then
        same "$page is good for man" "" "$(man --warnings -l "$made/$page" 2>&1 >/dev/null)"
    fi
done
missing() {
    local page=$1 name
    while read -r name; do
        grep -qF -- "${name//-/\\-}" "$made/$page" || echo "$name"
    done
}
same "varved(8) has every option" "" "$(options | sed 's/^/--/' | missing varved.8)"
same "varved.conf(5) likewise" "" "$(options | missing varved.conf.5)"
same "varve(1) likewise" "" "$("$VARVE" --help | grep -oE '(^|[ ,])--[a-z][a-z-]*' | tr -d ' ,' | sort -u | missing varve.1)"
same "varve(1) has every command" "" \
    "$("$VARVE" --help | sed -n '/^Commands:/,/^Options:/s/^  \([a-z]*\) .*/\1/p' | sort -u | missing varve.1)"

# ---- completions
complete_words() {
    # shellcheck disable=SC2016  # the inner shell's
    bash -c '. "$1"; program=$2; shift 2; COMP_WORDS=("$program" "$@"); COMP_CWORD=$#; "_$program"; echo "${COMPREPLY[*]}"' \
        complete "$made/$1.bash" "$1" "${@:2}"
}
same "varve completes commands" "push pull" "$(complete_words varve pu | tr ' ' '\n' | grep '^pu[sl]' | paste -sd' ')"
same "behind an option with its value too" "status" "$(complete_words varve --server 127.0.0.1:1 statu)"
same "and options" "--escape-names" "$(complete_words varve push --esc)"
same "varved completes options" "--drain-time" "$(complete_words varved --dr)"
same "and choices" "debug" "$(complete_words varved --log-level d)"
same "every one of them" "" "$(for option in $(options); do
    complete_words varved "--$option" | tr ' ' '\n' | grep -qx -- "--$option" || echo "$option"
done)"
finish
