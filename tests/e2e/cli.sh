#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# variants: asan
#
# The command varve against a real server: what it prints, its exit statuses, that what went in comes out, and that trees have
# the digests that they have everywhere.
# shellcheck source=/dev/null
. "$(dirname "$0")/lib.sh"

# run COMMAND...: its output in $out, what it said to a person in $err, its status in $status
run() {
    "$@" >"$WORK/out" 2>"$WORK/err" </dev/null
    status=$?
    out=$(cat "$WORK/out")
    err=$(cat "$WORK/err")
}
digest_of() {
    printf '%s/%s' "$(sha256sum "$1" | cut -d ' ' -f 1)" "$(stat -c %s "$1")"
}
one_line() {
    [ -n "$1" ] && [ "$(printf '%s' "$1" | wc -l)" = 0 ]
}
absent=$(printf 'never stored' | sha256sum | cut -d ' ' -f 1)/12

# ---- without a server
run "$VARVE" --server 127.0.0.1:1 --timeout 5 capabilities
same "a server that is not there is exit status 4" 4 "$status"
check "and one line that says what to look at" one_line "$err"
run env -u VARVE_SERVER "$VARVE" get "$absent"
same "no server given is wrong usage" 2 "$status"
run "$VARVE" --server 127.0.0.1:1 frobnicate
same "an unknown command is wrong usage" 2 "$status"
run "$VARVE" --server 127.0.0.1:1 get not-a-digest
same "what is no digest is wrong usage" 2 "$status"
run "$VARVE" --server no-port put "$0"
same "a server without a port is wrong usage" 2 "$status"
run "$VARVE" --help
same "help is asked for and is no error" 0 "$status"
run "$VARVE" --version
check "the version is told" grep -q '^varve [0-9]' "$WORK/out"

check "the server starts" start_server
[ -n "$SERVER_PID" ] || finish

# ---- put and get
head -c 5000000 /dev/urandom >"$WORK/large"
head -c 3000 /dev/urandom >"$WORK/small"
: >"$WORK/empty"
for file in large small empty; do
    wanted=$(digest_of "$WORK/$file")
    run "$VARVE" put "$WORK/$file"
    same "put $file prints its digest" "$wanted 0" "$out $status"
    "$VARVE" get "$wanted" >"$WORK/back" 2>"$WORK/err"
    same "get $file is exit status 0" 0 $?
    check "get $file gives its bytes" cmp "$WORK/$file" "$WORK/back"
    rm -f "$WORK/back"
    run "$VARVE" get "$wanted" -o "$WORK/back"
    check "get -o $file too" cmp "$WORK/$file" "$WORK/back"
done
same "put reads standard input" "$(digest_of "$WORK/small")" "$("$VARVE" put - <"$WORK/small")"
same "and a pipe" "$(digest_of "$WORK/large")" "$("$VARVE" put - < <(cat "$WORK/large"))"
large=$(digest_of "$WORK/large") small=$(digest_of "$WORK/small")

run "$VARVE" get "$absent"
same "get of what is not there is exit status 3" 3 "$status"
check "in one line that names the digest" grep -q "$absent" "$WORK/err"
printf old >"$WORK/kept"
run "$VARVE" get "$absent" -o "$WORK/kept"
same "a failed get -o leaves the old file" "old 3" "$(cat "$WORK/kept") $status"
same "and nothing else" 1 "$(find "$WORK" -name 'kept*' | wc -l)"
run "$VARVE" put "$WORK/nowhere"
same "put of a file that is not there is exit status 1" 1 "$status"
run "$VARVE" put "$WORK"
same "put of a directory too" 1 "$status"
"$VARVE" get "$large" 2>"$WORK/err" | head -c 10 >/dev/null
same "a reader that goes away is an error, no signal" 1 "${PIPESTATUS[0]}"
if [ -w /dev/full ]; then
    "$VARVE" put "$WORK/small" >/dev/full 2>"$WORK/err"
    same "output that cannot be written is exit status 1" 1 $?
fi
same "--json put" "$large" \
    "$("$VARVE" --json put "$WORK/large" | python3 -c 'import json,sys; d=json.load(sys.stdin)["digest"]; print(d["hash"]+"/"+str(d["size_bytes"]))')"

# ---- stat and missing
run "$VARVE" stat "$small" "$large"
same "stat of what is there is exit status 0" 0 "$status"
same "with a line for each" 2 "$(grep -c ' present' "$WORK/out")"
run "$VARVE" stat "$small" "$absent"
same "stat of what is not is exit status 3" "3 1 1" "$status $(grep -c ' present' "$WORK/out") $(grep -c ' missing' "$WORK/out")"
check "--json stat is JSON" python3 -c "import json,subprocess; r=json.loads(subprocess.run(['$VARVE','--json','stat','$small','$absent'],stdout=subprocess.PIPE).stdout); assert [e['present'] for e in r]==[True,False]"
run "$VARVE" missing "$small" "$absent" "$large"
same "missing prints those that are" "$absent 0" "$out $status"
check "and says how many" grep -q '1 of 3 missing' "$WORK/err"
printf '%s\n\n%s\n' "$small" "$absent" >"$WORK/digests"
run "$VARVE" missing --digests "$WORK/digests"
same "missing reads a file" "$absent" "$out"
same "and standard input" "$absent" "$("$VARVE" missing --digests - <"$WORK/digests" 2>/dev/null)"
echo nonsense >>"$WORK/digests"
run "$VARVE" missing --digests "$WORK/digests"
same "a line that is no digest is wrong usage" 2 "$status"
check "and is named by its number" grep -q 'line 4' "$WORK/err"

# ---- capabilities and status
run "$VARVE" capabilities
check "capabilities has the digest function" grep -q 'SHA256' "$WORK/out"
check "--json capabilities is JSON" python3 -c "import json,subprocess; c=json.loads(subprocess.run(['$VARVE','--json','capabilities'],stdout=subprocess.PIPE).stdout); assert 'SHA256' in c['digest_functions'] and c['max_batch_total_size_bytes'] > 0"
run "$VARVE" status
check "status says that it serves" grep -q 'serving' "$WORK/out"
check "--json status is JSON" python3 -c "import json,subprocess; s=json.loads(subprocess.run(['$VARVE','--json','status'],stdout=subprocess.PIPE).stdout); assert s['state'] == 'serving' and s['index_entries'] > 0"

# ---- trees: pushed, with the digests that they have everywhere, and then all there
# push NAME ROOT: of the directory $WORK/tree
push() {
    run "$VARVE" push "$WORK/tree"
    same "push of $1" "$2 0" "$out $status"
    run "$VARVE" missing --digests "$WORK/tree.digests"
    same "and nothing of it is missing" " 0" "$out $status"
    rm -rf "$WORK/tree" "$WORK/tree.digests"
    mkdir "$WORK/tree"
}
# known HASH/SIZE...: digests of the tree, to be there afterwards
known() {
    printf '%s\n' "$@" >>"$WORK/tree.digests"
}
abc=ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad/3
nothing=e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855/0
mkdir "$WORK/tree"

for locale in C C.UTF-8 tr_TR.UTF-8; do
    for name in $'\xc3\xa9' a Z B; do printf abc >"$WORK/tree/$name"; done
    chmod 644 "$WORK/tree"/*
    root=de390c75cd95d8121bf44905927f817128936bfdcabe263ff403f2215a07a6e2/301
    known $abc $root
    { LC_ALL=$locale push "four files under $locale" $root; } 2>/dev/null # bash warns of absent locales
done

printf abc >"$WORK/tree/a.b"
mkdir "$WORK/tree/a"
printf abc >"$WORK/tree/a/x"
chmod 644 "$WORK/tree/a.b" "$WORK/tree/a/x"
root=477a29db0ca7ab66c0c991c93d791458388900b0ae2e5c4af0a0135ddd8d8049/152
known $abc $root
push "a file beside a directory" $root

mkdir "$WORK/tree/d"
root=f1ed8604d447226847193a5c1573b32482f889243ffee1c724576aac3b68c344/73
known $nothing $root
push "an empty directory" $root

printf abc >"$WORK/tree/a"
chmod 644 "$WORK/tree/a"
ln -s a "$WORK/tree/b"
root=699eaddd3303c9f1b1f534a7f687fcd741450fcb9c2fd35558f017299091eab1/83
known $abc $root
push "a link" $root

ln -s nope "$WORK/tree/x"
root=fab70cb3cb187302b4138c9c591ccecb7f97a67aeca83c51a4f707c0e521ce67/11
known $root
push "a dangling link" $root

for mode in 644:4cc1bd6a1adf7cd71ea2d0c92f08fc093fb4dd74b64eadde282acfdc0fe95c62/75 \
    755:be63156408ea072841fd017c09ebb47382f554a7453ebf30469870a2250d4f42/77 \
    500:be63156408ea072841fd017c09ebb47382f554a7453ebf30469870a2250d4f42/77; do
    printf abc >"$WORK/tree/a"
    chmod "${mode%%:*}" "$WORK/tree/a"
    known $abc "${mode#*:}"
    push "mode ${mode%%:*}" "${mode#*:}"
done

# ---- trees that cannot be stored, and one that takes all ways at once
mkfifo "$WORK/tree/fifo"
printf abc >"$WORK/tree/$(printf 'bad\xff')"
run timeout 20 "$VARVE" push "$WORK/tree"
same "a tree that cannot be stored prints no root and is exit status 1" " 1" "$out $status"
check "its FIFO is named" grep -q 'fifo: ' "$WORK/err"
check "and the name that is not UTF-8, escaped" grep -qF 'bad\xff' "$WORK/err"
rm -rf "$WORK/tree"

mkdir -p "$WORK/tree/one/two"
for i in $(seq 400); do printf 'file number %s' "$i" >"$WORK/tree/one/two/$i"; done
cp "$WORK/large" "$WORK/tree/one/large"
head -c 300000 /dev/urandom >"$WORK/tree/middle"
run "$VARVE" --json push "$WORK/tree"
same "a mixed tree is pushed" 0 "$status"
first=$out
check "its counts are right" python3 -c "import json,sys; p=json.loads(sys.argv[1]); assert p['files']==402 and p['directories']==3 and p['blobs']==405 and p['present']==1 and p['uploaded']==404, p" "$first"
run "$VARVE" --json push "$WORK/tree"
check "the second push uploads nothing" python3 -c "import json,sys; a,b=map(json.loads,sys.argv[1:]); assert a['root']==b['root'] and b['uploaded']==0 and b['present']==405, b" "$first" "$out"
find "$WORK/tree" -type f | while read -r file; do digest_of "$file" && echo; done >"$WORK/tree.digests"
run "$VARVE" missing --digests "$WORK/tree.digests"
same "all its files are there" " 0" "$out $status"

check "the server stops with status 0" stop_server
finish
