#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Directory trees with the command varve against a real server: each case is named after what went wrong for somebody. Round
# trips are compared with diff and stat; a push that is killed at random moments ends, run again, in the same root.
# shellcheck source=/dev/null
. "$(dirname "$0")/lib.sh"

run() {
    "$@" >"$WORK/out" 2>"$WORK/err" </dev/null
    status=$?
    out=$(cat "$WORK/out")
}
# What stat sees of a tree: kind, execute bit, size of files, target of links, name.
seen() {
    (cd "$1" && find . -mindepth 1 \( -type f -printf 'file %m %s %p\n' -o -type l -printf 'link %l %p\n' -o -printf '%y %p\n' \) |
        sed -E 's/^file ([0-7]*)([4-7])([0-7]*) /file \1\2\3 /' | awk '$1 == "file" { $2 = (int(substr($2, length($2) - 2, 1)) % 2) } { print }' |
        LC_ALL=C sort)
}
same_trees() {
    check "$1: diff finds nothing" diff -r --no-dereference "$2" "$3"
    same "$1: and stat neither" "$(seen "$2")" "$(seen "$3")"
}
fresh() {
    chmod -R u+rwX "$WORK/tree" "$WORK/back" 2>/dev/null
    rm -rf "$WORK/tree" "$WORK/back"
    mkdir "$WORK/tree"
}
json() {
    python3 -c "import json,sys; d=json.loads(sys.argv[1]); print(eval(sys.argv[2]))" "$1" "$2"
}

check "the server starts" start_server
[ -n "$SERVER_PID" ] || finish

# ---- there and back
fresh
mkdir -p "$WORK/tree/a/b/c" "$WORK/tree/empty/inside" "$WORK/tree/ space "
for i in $(seq 500); do printf 'file %s' "$i" >"$WORK/tree/a/b/$i"; done
chmod 755 "$WORK/tree/a/b/7"
head -c 131072 /dev/urandom >"$WORK/tree/at the threshold"
head -c 131073 /dev/urandom >"$WORK/tree/above it"
head -c 7000000 /dev/urandom >"$WORK/tree/a/large"
: >"$WORK/tree/a/b/c/nothing"
printf x >"$WORK/tree/"$'new\nline'
printf x >"$WORK/tree/-rf"
printf x >"$WORK/tree/"$'\xc3\xa9'
ln "$WORK/tree/a/large" "$WORK/tree/hard link"
ln -s a/b "$WORK/tree/to a directory"
ln -s /etc/hostname "$WORK/tree/absolute"
ln -s ../../../.. "$WORK/tree/a/b/c/up"
ln -s gone "$WORK/tree/dangling"
run "$VARVE" push "$WORK/tree"
same "an awkward tree is pushed" 0 "$status"
awkward=$out
run "$VARVE" pull "$awkward" "$WORK/back"
same "and pulled" 0 "$status"
same_trees "an awkward tree" "$WORK/tree" "$WORK/back"
run "$VARVE" diff "$awkward" "$WORK/back"
same "diff of it with itself is nothing and exit status 0" " 0" "$out $status"
printf y >>"$WORK/back/a/b/3"
rm "$WORK/back/dangling"
chmod 644 "$WORK/back/a/b/7"
printf new >"$WORK/back/new"
run "$VARVE" diff "$awkward" "$WORK/back"
same "what differs is told, and exit status 5" \
    "$(printf 'added       new\ncontent     a/b/3\nexecutable  a/b/7\nremoved     dangling\n5')" "$(LC_ALL=C sort "$WORK/out")
$status"
run "$VARVE" cat "$awkward" a/b/9 a/b/10
same "cat writes files of a tree" "file 9file 10 0" "$out $status"
run "$VARVE" cat "$awkward" a/b
same "cat of a directory is exit status 1" 1 "$status"
check "and says where directories are listed" grep -q 'ls lists it' "$WORK/err"
run "$VARVE" ls -r "$awkward"
same "ls -r has a line for each entry" "$(find "$WORK/tree" -mindepth 1 | grep -cv '^line$') 0" "$(wc -l <"$WORK/out") $status"
run "$VARVE" --json ls "$awkward" a/b/c
same "--json ls is JSON" "['nothing', 'up']" "$(json "$out" '[e["path"] for e in d]')"
run "$VARVE" ls "$awkward" a/nowhere
same "ls of what is not in the tree is exit status 1" 1 "$status"
run "$VARVE" pull "$(printf nothing | sha256sum | cut -d ' ' -f 1)/7" "$WORK/back2"
same "pull of a tree that is not there is exit status 3" 3 "$status"
check "and says that it is missing" grep -q NOT_FOUND "$WORK/err"

# ---- links were followed and stored as copies; a link to nothing failed the whole upload
fresh
printf abc >"$WORK/tree/a"
chmod 644 "$WORK/tree/a"
ln -s a "$WORK/tree/b"
run "$VARVE" push "$WORK/tree"
same "B151 a link is kept" "699eaddd3303c9f1b1f534a7f687fcd741450fcb9c2fd35558f017299091eab1/83 0" "$out $status"
run "$VARVE" push --follow "$WORK/tree"
run "$VARVE" ls "$out"
same "B151 with --follow both are files with one digest" 2 "$(grep -c '^file  ba7816bf' "$WORK/out")"
ln -s nope "$WORK/tree/x"
run "$VARVE" push "$WORK/tree"
same "B152 a link to nothing is kept" 0 "$status"
run "$VARVE" pull "$out" "$WORK/back"
same "B152 and comes back" nope "$(readlink "$WORK/back/x")"
run "$VARVE" push --follow "$WORK/tree"
same "B152 with --follow it is an error and no root" " 1" "$out $status"
check "B152 that names it" grep -q 'push: x: No such file' "$WORK/err"
rm "$WORK/tree/x"
mkdir -p "$WORK/tree/d/e" "$WORK/outside/deep/er"
printf far >"$WORK/outside/deep/er/f"
ln -s ../.. "$WORK/tree/d/e/loop"
run timeout 20 "$VARVE" push --follow "$WORK/tree"
same "a link to a directory that it lies in ends no walk" " 1" "$out $status"
check "and is named" grep -q 'd/e/loop: a link to a directory that it lies in' "$WORK/err"
rm "$WORK/tree/d/e/loop"
ln -s "$WORK/outside" "$WORK/tree/d/e/out"
printf near >"$WORK/tree/d/e/z"
run "$VARVE" push --follow "$WORK/tree"
same "directories behind links are walked" 0 "$status"
run "$VARVE" pull "$out" "$WORK/back3"
check "and are directories then" diff -r "$WORK/tree" "$WORK/back3"
same "without a link" 0 "$(find "$WORK/back3" -type l | wc -l)"

# ---- names outside ASCII were encoded twice; others were not told
for locale in C C.UTF-8; do
    fresh
    printf abc >"$WORK/tree/"$'\xc3\xa9'
    run env LC_ALL=$locale "$VARVE" push "$WORK/tree"
    same "B155 a composed name, $locale" "3272f67d30be415af86674d36285c068ba6f586496e5adf7c8ba5433d96f8dc2/76" "$out"
    fresh
    printf abc >"$WORK/tree/"$'e\xcc\x81'
    run env LC_ALL=$locale "$VARVE" push "$WORK/tree"
    same "B155 a decomposed name, $locale" "12431a3196318bfe6ee39a7d849fef77e7a2405453775b24e99d29d961a31447/77" "$out"
done
printf abc >"$WORK/tree/"$'bad\xff'
printf abc >"$WORK/tree/"'bad\xff'
run "$VARVE" push "$WORK/tree"
same "B155 a name that is not UTF-8 is an error and no root" " 1" "$out $status"
check "B155 that names it escaped" grep -qF 'bad\xff: ' "$WORK/err"
run "$VARVE" push --escape-names "$WORK/tree"
same "B155 unless names are escaped" 0 "$status"
run "$VARVE" pull --escape-names "$out" "$WORK/back"
same_trees "escaped names come back" "$WORK/tree" "$WORK/back"

# ---- a named pipe hung the upload for ever
fresh
printf abc >"$WORK/tree/a"
mkfifo "$WORK/tree/pipe"
python3 -c "import socket,sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])" "$WORK/tree/socket"
run timeout 20 "$VARVE" push "$WORK/tree"
same "B165 special files are an error and no root" " 1" "$out $status"
same "B165 that names each" 2 "$(grep -cE 'push: (pipe|socket): ' "$WORK/err")"
run timeout 20 "$VARVE" push --skip-special "$WORK/tree"
same "B165 with --skip-special they are left out" 0 "$status"
same "B165 with a word for each" 2 "$(grep -cE 'push: (pipe|socket): .*; left out' "$WORK/err")"
run "$VARVE" ls "$out"
same "B165 and the rest is there" 1 "$(wc -l <"$WORK/out")"

# ---- a file that could not be read was left out silently
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
    fresh
    chmod 755 "$WORK"
    mkdir "$WORK/tree/closed" "$WORK/tree/listable"
    printf abc >"$WORK/tree/good"
    printf abc >"$WORK/tree/secret"
    printf abc >"$WORK/tree/listable/f"
    chmod 0 "$WORK/tree/secret" "$WORK/tree/closed"
    chmod 444 "$WORK/tree/listable"
    chown -R 65534:65534 "$WORK/tree"
    as_nobody=(setpriv --reuid 65534 --regid 65534 --clear-groups)
    run "${as_nobody[@]}" "$VARVE" push "$WORK/tree"
    same "B160 what cannot be read is an error and no root" " 1" "$out $status"
    same "B160 that names each path with its reason" 3 "$(grep -cE '(secret|closed|listable): Permission denied' "$WORK/err")"
    run "${as_nobody[@]}" "$VARVE" push --skip-unreadable "$WORK/tree"
    same "B160 with --skip-unreadable there is a root, and exit status 6" "1 6" "$(wc -l <"$WORK/out") $status"
    same "B160 that has the rest" "good" "$("$VARVE" ls "$out" | awk '{ print $3 }')"
    same "B160 and each is named all the same" 3 "$(grep -cE '(secret|closed|listable): Permission denied; left out' "$WORK/err")"
fi

# ---- a file was changed between hashing and uploading, and poisoned the cache
fresh
for i in $(seq 200); do printf 'small file %s' "$i" >"$WORK/tree/$i"; done
outcomes=''
for round in $(seq 6); do
    head -c 20000000 /dev/urandom >"$WORK/tree/big"
    "$VARVE" push "$WORK/tree" >"$WORK/out" 2>"$WORK/err" &
    pushing=$!
    for step in $(seq 40); do
        kill -0 $pushing 2>/dev/null || break
        case $((step % 4)) in
        0) printf more >>"$WORK/tree/big" ;;
        1) printf 'rewritten %s' "$step" >"$WORK/tree/$((step + round))" ;;
        2) cp "$WORK/tree/1" "$WORK/tree/big.new" && mv "$WORK/tree/big.new" "$WORK/tree/$((step + 50))" ;;
        3) truncate -s 9999999 "$WORK/tree/big" ;;
        esac
    done
    wait $pushing
    status=$?
    if [ $status = 0 ]; then
        # Its root is whole: everything it names comes back, verified.
        "$VARVE" pull "$(cat "$WORK/out")" "$WORK/back" >/dev/null 2>"$WORK/err" && outcomes+=o || outcomes+="root-not-whole($(tail -1 "$WORK/err"))"
        rm -rf "$WORK/back"
    elif [ $status = 1 ] && grep -q "big\|push: [0-9]" "$WORK/err"; then
        outcomes+=e
    else
        outcomes+="status-$status($(tail -1 "$WORK/err"))"
    fi
done
same "B158 a push of files that change is whole, or an error that names one" "" "${outcomes//[oe]/}"

# ---- thousands of files took a call each
fresh
python3 - "$WORK/tree" <<'EOF'
import os, sys
root = sys.argv[1]
for d in range(500):
    os.mkdir(f"{root}/{d}")
    for f in range(22):
        with open(f"{root}/{d}/{f}", "w") as file:
            file.write(f"{d} {f} " * 250)
path = root
for depth in range(100):
    path += "/deep"
    os.mkdir(path)
    with open(path + "/f", "w") as file:
        file.write(str(depth))
EOF
(
    ulimit -n 64
    "$VARVE" --json push "$WORK/tree" >"$WORK/out" 2>"$WORK/err"
)
same "B163 11,100 files in 600 directories are pushed with 64 descriptors" 0 $?
out=$(cat "$WORK/out")
same "B162 in at most 40 calls" True "$(json "$out" 'd["pages"] + d["batches"] + d["streams"] + 1 <= 40')"
root=$(json "$out" 'd["root"]["hash"] + "/" + str(d["root"]["size_bytes"])')
run "$VARVE" --json push "$WORK/tree"
same "B162 the second time in at most three, with nothing uploaded" True "$(json "$out" 'd["uploaded"] == 0 and d["pages"] + d["batches"] + d["streams"] + 1 <= 3')"
(
    ulimit -n 64
    "$VARVE" pull "$root" "$WORK/back" 2>"$WORK/err"
)
same "B163 and pulled with as few" 0 $?
check "B163 as they were" diff -r "$WORK/tree" "$WORK/back"
run "$VARVE" --jobs 1 push "$WORK/tree"
same "with --jobs 1 too" "$root 0" "$out $status"

# ---- a push that is killed and run again
fresh
for d in $(seq 0 40); do
    mkdir "$WORK/tree/$d"
    for f in $(seq 30); do printf 'file %s %s' "$d" "$f" >"$WORK/tree/$d/$f"; done
done
killed=0
for round in $(seq 20); do
    printf 'round %s' "$round" >"$WORK/tree/0/round"
    head -c 3000000 /dev/urandom >"$WORK/tree/large"
    for d in 1 2 3 4 5; do
        for f in $(seq 20); do printf 'round %s %s %s' "$round" $d "$f" >"$WORK/tree/$d/new$f"; done
    done
    "$VARVE" push "$WORK/tree" >/dev/null 2>&1 &
    pushing=$!
    sleep "0.0$((RANDOM % 10))$((RANDOM % 10))"
    kill -KILL $pushing 2>/dev/null && killed=$((killed + 1))
    wait $pushing 2>/dev/null
    first=$("$VARVE" push "$WORK/tree" 2>/dev/null)
    again=$("$VARVE" push "$WORK/tree" 2>/dev/null)
    if [ -z "$first" ] || [ "$first" != "$again" ]; then break; fi
    (cd "$WORK/tree" && sha256sum large 0/round 3/new7 | while read -r hash name; do echo "$hash/$(stat -c %s "$name")"; done) >"$WORK/digests"
    if [ -n "$("$VARVE" missing --digests "$WORK/digests" 2>/dev/null)" ]; then break; fi
    "$VARVE" diff "$first" "$WORK/tree" >"$WORK/out" 2>&1 || break
done
same "a push that was killed 20 times ends, run again, in the same root with everything present" 20 "$round"
check "and was killed in the middle some of those times" [ "$killed" -gt 0 ]
rm -rf "$WORK/back"
run "$VARVE" pull "$first" "$WORK/back"
check "which comes back whole" diff -r "$WORK/tree" "$WORK/back"

# ---- whole files were read into memory; progress for a person, a log and a program
fresh
truncate -s 300M "$WORK/tree/sparse"
for i in $(seq 100); do head -c 1048576 /dev/zero | tr '\0' "\\$((i % 8))" >"$WORK/tree/$i" && printf '%s' "$i" >>"$WORK/tree/$i"; done
python3 - "$VARVE" "$WORK/tree" >"$WORK/out" 2>"$WORK/err" <<'EOF'
import resource, subprocess, sys
result = subprocess.run([sys.argv[1], "--json", "push", sys.argv[2]], stdout=subprocess.DEVNULL)
print(result.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)
EOF
read -r status mebibytes <"$WORK/out"
same "B102 400 MiB are pushed" 0 "$status"
check "B102 in less than 128 MiB of memory ($mebibytes)" [ "$mebibytes" -lt 128 ]
check "every line of --json on standard error is an object" python3 -c "
import json, sys
for line in open(sys.argv[1]):
    assert json.loads(line)['event'] in ('progress', 'problem', 'skipped'), line" "$WORK/err"
if command -v script >/dev/null; then
    truncate -s 1000M "$WORK/tree/sparse"
    script -qec "'$VARVE' push '$WORK/tree'" "$WORK/typescript" >/dev/null 2>&1
    check "on a terminal there is a line that is written over" grep -q $'\rvarve: push: ' "$WORK/typescript"
    run "$VARVE" push "$WORK/tree"
    check "elsewhere there are lines, and no bar" bash -c "! grep -q '#\|'\$'\r' '$WORK/err'"
fi
rm -f "$WORK/tree/sparse"

# ---- without a server
run "$VARVE" put --store "$DATA" "$WORK/tree/1"
same "a store whose server runs is not touched" 1 "$status"
check "and it is said who has it" grep -qi 'lock\|another process\|in use' "$WORK/err"
check "the server stops with status 0" stop_server
head -c 3000000 /dev/urandom >"$WORK/file"
wanted=$(sha256sum "$WORK/file" | cut -d ' ' -f 1)/3000000
run "$VARVE" put --store "$DATA" "$WORK/file"
same "put --store prints the digest" "$wanted 0" "$out $status"
run "$VARVE" put --store "$DATA" -
same "put --store takes standard input" 0 "$status"
run "$VARVE" put --store "$WORK/tree" "$WORK/file"
same "what is no store is left alone" 1 "$status"
check "the server starts again" start_server
run "$VARVE" get "$wanted" -o "$WORK/back.file"
check "and has the file" cmp "$WORK/file" "$WORK/back.file"
run "$VARVE" put --jobs 3 "$WORK/file"
same "an option of another command is wrong usage" 2 "$status"
run "$VARVE" --jobs 0 push "$WORK/tree"
same "no jobs are wrong usage" 2 "$status"
check "the server stops with status 0 again" stop_server
finish
