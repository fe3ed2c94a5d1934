#!/usr/bin/env bash
# frugrad tokens: ids and pieces of bytes, of a small BPE and of a small WordPiece vocabulary, in three forms; where real
# vocabularies are installed, the ids of GPT-2 and BERT for real text.
set -euo pipefail
export FRUGRAD_PROGRESS=off # how long things take must not change what is printed
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "cli_tokens: $*" >&2; exit 1; }
cd "$work"

[ "$("$FRUGRAD" tokens --ids 'aä')" = '97 195 164' ] || fail "bytes are not themselves"
"$FRUGRAD" tokens $'a\n\xff' >out
printf "      97  'a'\n      10  '\\\\x0A'\n     255  '\\\\xFF'\n3 tokens from a vocabulary of 256\n" | cmp - out || fail "table"
printf 'a b' | "$FRUGRAD" tokens --json | python3 -c '
import json, sys
assert json.load(sys.stdin) == {"tokens": "bytes", "vocab": 256, "count": 3, "ids": [97, 32, 98], "pieces": ["a", " ", "b"]}' ||
    fail "JSON of bytes"
printf '[UNK]\n[CLS]\n[SEP]\n[MASK]\nun\n##able\ncafé\ncafe\n' >vocab.txt
printf 'Unable CAFÉ x' >text
"$FRUGRAD" tokens --tokens vocab.txt --file text --json | python3 -c '
import json, sys
found = json.load(sys.stdin)
assert found["ids"] == [4, 5, 7, 0] and found["pieces"] == ["un", "##able", "cafe", "[UNK]"], found' || fail "WordPiece"
[ -z "$("$FRUGRAD" tokens --tokens vocab.txt --ids '')" ] || fail "an empty text has tokens"

# wrong STATUS PATTERN ARGUMENTS...
wrong() {
    local status=$1 pattern=$2 code=0
    shift 2
    "$FRUGRAD" tokens "$@" >out 2>err || code=$?
    [ $code = "$status" ] && grep -q -- "$pattern" err || fail "'$*' gives $code and: $(cat err)"
}
wrong 2 'give one of them' --ids --json x
wrong 2 'give one of them' --file text x
wrong 1 "/nowhere: expected 'encoder.json'" --tokens /nowhere x
wrong 1 'no/file' --file no/file
wrong 1 "text: line 2: the end; expected a line '\[UNK\]'" --tokens text x
"$FRUGRAD" tokens x >/dev/full 2>err && fail "a full disk goes unnoticed"

data=${FRUGRAD_DATA:-}
[ -n "$data" ] && [ -d "$data/tokenizers" ] || { echo "cli_tokens: no tokenizers below FRUGRAD_DATA; real vocabularies were not tried"; exit 0; }
[ "$("$FRUGRAD" tokens --tokens "$data/tokenizers" --ids 'Hello world')" = '15496 995' ] || fail "GPT-2's ids"
"$FRUGRAD" tokens --tokens "$data/tokenizers" 'Hello world' | grep -qF "'Hello'" || fail "GPT-2's pieces"
unpack() { python3 -c 'import lzma, sys; sys.stdout.buffer.write(lzma.open(sys.argv[1]).read())' "$1"; }
unpack "$data/wikitext-2/valid.txt.xz" >valid.txt
unpack "$data/wikitext-2/valid.gpt2bpe.u16.xz" >valid.u16
"$FRUGRAD" tokens --tokens "$data/tokenizers" --ids --file valid.txt >ids
python3 -c '
import array
oracle = array.array("H", open("valid.u16", "rb").read())
assert list(map(int, open("ids").read().split())) == list(oracle)' || fail "GPT-2's ids of WikiText-2"
python3 - "$data" <<'PY'
import lzma, sys
data = sys.argv[1]
rows = lzma.open(data + "/glue/SST-2/dev.tsv.xz", "rt", encoding="utf-8").read().splitlines()[1:]
open("rows.txt", "w", encoding="utf-8").write("\n".join(row.split("\t")[0] for row in rows))
PY
"$FRUGRAD" tokens --tokens "$data/tokenizers/bert_base_uncased_vocab.txt" --ids --file rows.txt >ids
python3 - "$data" <<'PY' || fail "BERT's ids of SST-2"
import lzma, sys
oracle = lzma.open(sys.argv[1] + "/tokenizers/oracle/bert_SST-2.dev.ids.txt.xz", "rt").read().splitlines()
wanted = [id for row in oracle for id in map(int, row.split()) if id not in (101, 102)]
assert list(map(int, open("ids").read().split())) == wanted, (len(wanted), wanted[:20])
PY
