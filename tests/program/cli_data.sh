#!/usr/bin/env bash
# frugrad data linux-text: archives that Python writes, in every format; the sample, the vocabulary and the tokens are
# those of a second, simple computation; the trainer reads them; wrong archives are refused.
set -euo pipefail
export FRUGRAD_PROGRESS=off
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "cli_data: $*" >&2; exit 1; }
cd "$work"

cat >make.py <<'PY'
import io, random, tarfile
random.seed(3)
words = "kernel the lock of a queue is freed by its owner 64 pages == NULL irq x1 return".split()
words += ["".join(random.choice("abcdefgh") for _ in range(6)) for _ in range(60)]
def text(size): return "".join(random.choice(words) + random.choice((" ", " ", "\n", ",\n\t")) for _ in range(size)).encode()
wanted, others = {}, {}
for i in range(250):
    wanted[f"Documentation/{'deep-folder/' * (i % 14)}page{i}.{'rst' if i % 2 else 'txt'}"] = text(150 + i) + "ä€\n".encode()
others["drivers/gpu/drm/amd/include/registers.rst"] = others["include/dt-bindings/names.txt"] = text(300)
others["Documentation/short.rst"], others["Documentation/long.rst"] = b"short", text(50000)
others["Documentation/latin1.rst"], others["Documentation/zero.rst"] = b"\xe4" * 600, b"a" * 600 + b"\0"
others["Documentation/picture.svg"], others["Makefile"] = text(300), text(300)
for kind, form in ("ustar", tarfile.USTAR_FORMAT), ("gnu", tarfile.GNU_FORMAT), ("pax", tarfile.PAX_FORMAT):
    with tarfile.open(f"{kind}.tar", "w", format=form) as tar:
        for name, content in random.sample(list({**wanted, **others}.items()), len(wanted) + len(others)):
            entry = tarfile.TarInfo(f"linux-{kind}/{name}")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
        for kind_of, name in (tarfile.SYMTYPE, "link.rst"), (tarfile.DIRTYPE, "folder.rst"), (tarfile.LNKTYPE, "hard.rst"):
            entry = tarfile.TarInfo(f"linux-{kind}/Documentation/{name}")
            entry.type, entry.linkname = kind_of, "page1.rst"
            tar.addfile(entry)
import pickle
pickle.dump(wanted, open("wanted", "wb"))
PY
python3 make.py
for kind in ustar gnu pax; do
    "$FRUGRAD" data linux-text $kind --source $kind.tar --vocab 400 >$kind.txt
done
for file in train.u16 valid.u16 test.u16 vocab.json merges.txt; do
    cmp ustar/$file gnu/$file && cmp ustar/$file pax/$file || fail "$file depends on the format or the order of the archive"
done
gzip -k gnu.tar && xz -k gnu.tar
for packed in gz xz; do
    "$FRUGRAD" data linux-text $packed --source gnu.tar.$packed --vocab 400 --json >$packed.json
    cmp ustar/train.u16 $packed/train.u16 || fail ".$packed gives other tokens"
    cmp <(python3 -m json.tool --sort-keys <$packed.json) <(python3 -m json.tool --sort-keys <$packed/summary.json)
done

cat >check.py <<'PY'
import array, collections, json, pickle, re
wanted = collections.Counter(pickle.load(open("wanted", "rb")).values())
vocab = json.load(open("ustar/vocab.json"))
plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
spelling = {b: chr(b) for b in plain}
for b in range(256):
    spelling.setdefault(b, chr(256 + sum(x not in plain for x in range(b))))
byte = {c: b for b, c in spelling.items()}
pieces = {i: bytes(byte[c] for c in name) for name, i in vocab.items() if name != "<|endoftext|>"}
assert vocab["<|endoftext|>"] == 399 and len(vocab) == 400 and all(pieces[b] == bytes([b]) for b in range(256))
texts = {}
for split in "train", "valid", "test":
    ids = array.array("H", open(f"ustar/{split}.u16", "rb").read())
    assert ids[-1] == 399
    texts[split] = b"".join(b"\0" if i == 399 else pieces[i] for i in ids).split(b"\0")[:-1]
found = collections.Counter(sum(texts.values(), []))
assert found == wanted, (len(found), len(wanted))
assert len(texts["train"]) > 200 and texts["valid"] and texts["test"], {k: len(v) for k, v in texts.items()}
# The merges, learned one pair at a time from all pairs.
words = collections.Counter()
for text in texts["train"]:
    words.update(re.findall(r" ?[^\W\d_]+| ?\d+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+", text.decode()))
words = {tuple(pieces_of): n for word, n in words.items() for pieces_of in [[bytes([b]) for b in word.encode()]]}
ids, merges = {bytes([b]): b for b in range(256)}, []
while len(ids) < 399:
    pairs = collections.Counter()
    for word, n in words.items():
        for pair in zip(word, word[1:]):
            pairs[pair] += n
    best = min((p for p in pairs if p[0] + p[1] not in ids), key=lambda p: (-pairs[p], ids[p[0]], ids[p[1]]))
    ids[best[0] + best[1]] = len(ids)
    merges.append(best)
    merged = collections.Counter()
    for word, n in words.items():
        out, i = [], 0
        while i < len(word):
            both = word[i:i + 2] == best
            out.append(word[i] + word[i + 1] if both else word[i])
            i += 1 + both
        merged[tuple(out)] += n
    words = merged
spelled = ["#version: 0.2"] + [" ".join("".join(spelling[b] for b in part) for part in pair) for pair in merges]
assert open("ustar/merges.txt", encoding="utf-8").read().splitlines() == spelled
PY
python3 check.py || fail "the files are not those of the second computation"

"$FRUGRAD" tokens --tokens ustar --ids 'the lock of a queue' | grep -qE '^[0-9]+( [0-9]+)*$' || fail "tokens"
"$FRUGRAD" train --model gpt2-nano --data ustar --steps 2 --batch 2 --quiet --json >run.json
python3 -c 'import json; r = json.load(open("run.json")); assert r["tokens"] == "ids in the data", r["tokens"]' || fail "train"

# wrong STATUS PATTERN ARGUMENTS...
wrong() {
    local status=$1 pattern=$2 code=0
    shift 2
    "$FRUGRAD" data "$@" >out 2>err || code=$?
    [ $code = "$status" ] && grep -q -- "$pattern" err || fail "'$*' gives $code and: $(cat err)"
}
wrong 2 "there is no data set 'linux'" linux made
wrong 2 'percent' linux-text made --source gnu.tar --percent 0
wrong 2 'vocab' linux-text made --source gnu.tar --vocab 256
wrong 1 'linux-source-6.1 puts the archive' linux-text made --source nowhere.tar.xz
wrong 1 'tokens at most; expected 60000' linux-text made --source gnu.tar --vocab 60000
head -c 3000 gnu.tar.xz >cut.tar.xz
wrong 1 'cut.tar.xz: byte 3000: cannot unpack: the xz data ends too early' linux-text made --source cut.tar.xz
head -c 3000 gnu.tar.gz >cut.tar.gz
wrong 1 'cut.tar.gz: ' linux-text made --source cut.tar.gz
head -c 5000 gnu.tar >cut.tar
wrong 1 'cut.tar: byte 5000 of the archive: it ends too early' linux-text made --source cut.tar
{ printf 'x'; tail -c +2 gnu.tar; } >damaged.tar
wrong 1 'damaged.tar: byte 0 of the archive: expected a header of tar' linux-text made --source damaged.tar
head -c 1024 /dev/zero >empty.tar
wrong 1 'empty.tar: ' linux-text made --source empty.tar
wrong 1 'cannot' linux-text /dev/null/out --source gnu.tar

# -- whatever ends a second run, the files are those of the first, and there are no others
cp -r ustar old
unchanged() { diff -rq old ustar || fail "$1: a data set is changed by a run that fails"; }
waiting() { # a second run in the background that has opened its files and waits for its archive; its process is $child
    env --default-signal=INT "$FRUGRAD" data linux-text ustar --source pipe.tar --vocab 300 >out 2>err &
    child=$!
    until [ "$(find ustar -name '.frugrad-*' | wc -l)" = 6 ] || ! kill -0 $child; do sleep 0.01; done
}
wrong 1 'cut.tar: byte 5000' linux-text ustar --source cut.tar --vocab 300
unchanged "a wrong archive"
(ulimit -f 20 && wrong 1 'ustar/train.u16: cannot write: File too large' linux-text ustar --source gnu.tar --vocab 300)
unchanged "a file that cannot be written"
mkfifo pipe.tar
for signal in INT TERM; do
    waiting
    kill -$signal $child
    ! wait $child || fail "SIG$signal does not end the run"
    unchanged "SIG$signal"
done
waiting
kill -KILL $child
wait $child 2>/dev/null || true
diff -rq -x '.frugrad-*' old ustar || fail "a data set is changed by a run that is killed"
"$FRUGRAD" train --model gpt2-nano --data ustar --steps 2 --batch 2 --quiet --json >again.json
python3 -c 'import json; a, b = (json.load(open(f))["loss"] for f in ("run.json", "again.json")); assert a == b, (a, b)' ||
    fail "what a killed run left is read as data"
"$FRUGRAD" data linux-text ustar --source gnu.tar --vocab 400 >out
diff -rq -x summary.json old ustar || fail "what a killed run left is not removed by the next"

# -- a run that ends between its renames leaves no data set, not one of two vocabularies
waiting
rm ustar/test.u16 && mkdir ustar/test.u16
cat gnu.tar >pipe.tar
! wait $child || fail "a directory is replaced by a file"
grep -q 'ustar/test.u16: cannot write' err || fail "a rename that fails: $(cat err)"
[ -z "$(find ustar -name '.frugrad-*')" ] || fail "temporary files are left"
code=0
"$FRUGRAD" train --model gpt2-nano --data ustar --steps 1 >out 2>err || code=$?
[ $code = 1 ] && grep -q "ustar: expected 'train.txt'" err || fail "half of a data set is read: $code $(cat err)"
rmdir ustar/test.u16
"$FRUGRAD" data linux-text ustar --source gnu.tar --vocab 400 >out
diff -rq -x summary.json old ustar || fail "the next run does not repair the data set"

# -- the directory is tried before the archive is read, and one that was made for nothing is removed
wrong 1 '/dev/null/out: cannot make the directory' linux-text /dev/null/out --source nowhere.tar
mkdir -p taken/train.u16
wrong 1 'taken/train.u16: cannot write: is a directory' linux-text taken --source nowhere.tar
[ ! -e made ] || fail "a run that fails leaves a directory"

# -- token ids are read without --tokens
code=0
"$FRUGRAD" train --model gpt2-nano --data ustar --tokens bytes --steps 1 >out 2>err || code=$?
[ $code = 1 ] && grep -q 'ustar: has token ids and no text; omit --tokens' err || fail "--tokens bytes: $code $(cat err)"
