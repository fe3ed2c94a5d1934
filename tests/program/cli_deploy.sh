#!/usr/bin/env bash
# From a trained model to a pruned and compact one: every step keeps what it promises, and bad input is refused.
. "$(dirname "$0")/../support/script.sh"
cd "$work"
frugrad=$FRUGRAD

loss() { # of a file of weights, or a directory of checkpoints
    local from=--weights
    [ -d "$1" ] && from=--resume
    "$frugrad" eval $model $from "$1" --eval-batches 2 --json | tr -d '\n' | sed 's/.*"loss": *\([0-9.e-]*\).*/\1/'
}
near() { # a b share
    awk "BEGIN { d = $1 - $2; exit !(d <= $3 * $1 && -d <= $3 * $1) }"
}
model="--model gpt2-nano --data builtin --threads 1"
"$frugrad" train $model --workers 1 --method dense --steps 6 --batch 4 --no-eval --save run >/dev/null 2>&1 || fail "train"

# Pruned: the promised number, by each criterion; nothing else changes.
for how in "--sparsity 0.8" "--sparsity 0.8 --scope tensor" "--sparsity 0.8 --scope row" "--pattern 2:4" "--pattern 4:8" \
    "--sparsity 0.5 --by wanda $model --eval-batches 1 --batch 2"; do
    "$frugrad" prune run $how --json -o pruned.safetensors >prune.json || fail "prune $how"
    share=$(tr -d '\n' <prune.json | sed 's/.*"matrices": *\([0-9]*\).*"pruned": *\([0-9]*\).*/\2 \1/' |
        awk '{ printf "%.2f", $1 / $2 }')
    case $how in *0.8*) want=0.80 ;; *) want=0.50 ;; esac
    [ "$share" = $want ] || fail "prune $how: $share"
done
"$frugrad" prune run --sparsity 0.5 --skip attn --json -o skipped.safetensors | grep -q '"matrices": 55296' || fail "--skip"
expect_error 1 "no tensor of run has 'atn' in its name" prune run --sparsity 0.5 --skip atn -o x.safetensors
expect_error 1 "no tensor of run has 'atn' in its name" prune run --sparsity 0.5 --units channels --skip atn -o x.safetensors
# A layer stays as it is, too, if only the tensor that reads it is named.
for skip in h.0.mlp.c_proj h.0.mlp.c_fc; do
    "$frugrad" prune run --sparsity 0.5 --units channels --skip $skip --json -o skipped.safetensors |
        grep -q '"units": 384' || fail "--units channels --skip $skip"
done
expect_error 1 "that --skip does not exclude" prune run --sparsity 0.5 --units channels --skip mlp -o x.safetensors

# A damaged checkpoint is not a model, wherever it is named.
checkpoint=run/step-000000006.safetensors
cp $checkpoint damaged.safetensors
printf '\245\245\245\245\245\245\245\245' | dd of=damaged.safetensors bs=1 seek=$(($(wc -c <$checkpoint) / 2)) conv=notrunc 2>/dev/null
cmp -s $checkpoint damaged.safetensors && fail "not damaged"
expect_error 1 "damaged.safetensors: is damaged: its checksum is" prune damaged.safetensors --sparsity 0.5 -o x.safetensors
expect_error 1 "damaged.safetensors: is damaged: its checksum is" export damaged.safetensors -o x.fgc
expect_error 1 "damaged.safetensors: is damaged: its checksum is" eval $model --weights damaged.safetensors
"$frugrad" eval --model gpt2-nano:heads=1 --data builtin --threads 1 --resume run --eval-batches 2 >/dev/null 2>other.err || fail "eval"
grep -q 'run is of --model gpt2-nano, and used as gpt2-nano:heads=1' other.err || fail "another model: $(cat other.err)"
for command in "eval --data builtin --eval-batches 2 --weights" "sample --length 2 --weights" "sample --length 2 --resume"; do
    "$frugrad" $command $checkpoint --model gpt2-nano:heads=1 --threads 1 >/dev/null 2>other.err || fail "$command: $(cat other.err)"
    grep -q 'is of --model gpt2-nano, and used as gpt2-nano:heads=1' other.err || fail "$command, another model: $(cat other.err)"
done
loss run >/dev/null 2>same.err
grep -q 'is of --model' same.err && fail "the same model: $(cat same.err)"

# Of a directory the newest checkpoint that can be read is used, and one that cannot be read is reported, once.
mkdir cut only
cp $checkpoint cut/
for folder in cut only; do
    head -c 5000 $checkpoint >$folder/step-000000009.safetensors
done
for command in "eval $model --eval-batches 2 --resume" "sample --model gpt2-nano --length 2 --resume" \
    "prune --sparsity 0.5 -o x.safetensors" "export -o x.safetensors"; do
    "$frugrad" $command cut >/dev/null 2>cut.err || fail "$command cut: $(cat cut.err)"
    grep -q 'skipped; using the checkpoint before it, of step 6' cut.err || fail "$command: an older one is used without a message"
    [ "$(grep -c 'step-000000009.safetensors: ' cut.err)" = 1 ] || fail "$command cut: $(cat cut.err)"
    "$frugrad" $command only >/dev/null 2>cut.err && fail "$command only"
    [ "$(grep -c '^frugrad: ' cut.err)" = 1 ] && grep -q 'step-000000009.safetensors: ' cut.err || fail "$command only: $(cat cut.err)"
done

# Compact: the same weights, the same loss, the same text.
"$frugrad" prune run --sparsity 0.8 -o pruned.safetensors >/dev/null
"$frugrad" export pruned.safetensors -o model.fgc >/dev/null
"$frugrad" export model.fgc -o back.safetensors >/dev/null
cmp pruned.safetensors back.safetensors || fail "weights change in a compact file"
dense=$(loss pruned.safetensors)
near "$dense" "$(loss model.fgc)" 1e-5 || fail "loss of the compact file: $(loss model.fgc), of safetensors: $dense"
"$frugrad" export pruned.safetensors --code int8 -o int8.fgc >/dev/null
near "$dense" "$(loss int8.fgc)" 0.01 || fail "loss with int8: $(loss int8.fgc), with f32: $dense"
[ "$(wc -c <int8.fgc)" -lt "$(wc -c <model.fgc)" ] || fail "int8 is not smaller"
for file in pruned.safetensors model.fgc; do
    "$frugrad" sample --model gpt2-nano --weights $file --prompt a --length 8 --temperature 0 >$file.text || fail "sample $file"
done
cmp pruned.safetensors.text model.fgc.text || fail "sample differs"

# Embeddings, too: the output layer has the same weights, and stays packed like them.
"$frugrad" prune run --sparsity 0.8 --embeddings --json -o tables.safetensors | tr -d '\n' >tables.json || fail "prune --embeddings"
all=$(sed 's/.*"weights": *\([0-9]*\).*/\1/' tables.json) some=$(sed 's/.*"matrices": *\([0-9]*\).*/\1/' tables.json)
[ "$some" -gt $((all * 9 / 10)) ] || fail "--embeddings: $some of $all weights"
for code in f32 int8; do
    "$frugrad" export tables.safetensors --code $code -o tables-$code.fgc >/dev/null
    "$frugrad" sample --model gpt2-nano --weights tables-$code.fgc --prompt a --length 8 --temperature 0 >$code.text ||
        fail "sample tables-$code.fgc"
done
"$frugrad" sample --model gpt2-nano --weights tables.safetensors --prompt a --length 8 --temperature 0 >tables.text
cmp tables.text f32.text || fail "sample with packed embeddings differs"
[ "$(wc -c <tables-f32.fgc)" -lt "$(wc -c <model.fgc)" ] || fail "--embeddings does not shrink the file"
near "$(loss tables.safetensors)" "$(loss tables-f32.fgc)" 1e-5 || fail "loss with packed embeddings"
near "$(loss tables.safetensors)" "$(loss tables-int8.fgc)" 0.01 || fail "loss with packed int8 embeddings"
expect_error 2 'compares magnitudes' prune run --sparsity 0.5 --embeddings --by wanda $model -o x.safetensors
expect_error 2 'is not for --units' prune run --sparsity 0.5 --embeddings --units channels -o x.safetensors

# Activations below a threshold count as zero: few of them change little, many change more; int8 weights likewise.
"$frugrad" export run -o dense.safetensors >/dev/null
"$frugrad" export run --code int8 -o dense8.fgc >/dev/null
cut() { # share file
    "$frugrad" eval $model --weights "$2" --eval-batches 2 --activations "$1" --json | tr -d '\n' |
        sed 's/.*"loss": *\([0-9.e-]*\).*/\1/'
}
whole=$(loss dense.safetensors)
near "$whole" "$(cut 0.1 dense.safetensors)" 0.002 || fail "--activations 0.1: $(cut 0.1 dense.safetensors), without: $whole"
[ "$(cut 0.9 dense.safetensors)" != "$(cut 0.1 dense.safetensors)" ] || fail "--activations 0.9 changes nothing"
near "$(cut 0.5 dense.safetensors)" "$(cut 0.5 dense8.fgc)" 0.01 || fail "--activations with int8"
[ "$(cut 0.5 model.fgc)" = "$(loss model.fgc)" ] || fail "--activations with sparse weights"
seq 100 | tr '\n' ' ' >some.txt
for file in dense.safetensors dense8.fgc; do
    "$frugrad" sample --model gpt2-nano --weights $file --prompt a --length 8 --temperature 0 --activations 0.01 \
        --calibration some.txt >cut.text || fail "sample --activations"
    [ "$(wc -c <cut.text)" -ge 10 ] || fail "sample --activations wrote $(cat cut.text)"
done
"$frugrad" train $model --workers 1 --method dense --steps 1 --batch 4 --no-eval --weights model.fgc >/dev/null 2>&1 ||
    fail "train from a compact file"

# Heads and columns are removed: the same as if they were zero, in fewer weights; also compact, sampled and trained on.
for units in channels heads; do
    for keep in "" --keep-shapes; do
        "$frugrad" prune run --sparsity 0.3 --units $units --model gpt2-nano $keep --json -o $units$keep.safetensors >units.json ||
            fail "prune --units $units $keep"
    done
    near "$(loss $units--keep-shapes.safetensors)" "$(loss $units.safetensors)" 1e-5 || fail "$units removed are not $units of zero"
    [ "$(wc -c <$units.safetensors)" -lt "$(wc -c <$units--keep-shapes.safetensors)" ] || fail "$units are not removed"
done
"$frugrad" prune heads.safetensors --sparsity 0.5 --units channels -o both.safetensors >/dev/null || fail "prune both"
"$frugrad" export both.safetensors --code int8 -o both.fgc >/dev/null
near "$(loss both.safetensors)" "$(loss both.fgc)" 0.01 || fail "loss of removed units with int8"
"$frugrad" sample --model gpt2-nano --weights both.fgc --prompt a --length 8 --temperature 0 >/dev/null || fail "sample both.fgc"
"$frugrad" train $model --workers 1 --steps 2 --batch 4 --no-eval --weights both.fgc --save less >/dev/null 2>&1 || fail "train both.fgc"
near "$(loss less)" "$(loss both.safetensors)" 0.2 || fail "a checkpoint of removed units"
images="--model resnet20 --data builtin --threads 1 --batch 4"
"$frugrad" train $images --workers 1 --steps 2 --no-eval --save resnet >/dev/null 2>&1 || fail "train resnet20"
for keep in "" --keep-shapes; do
    "$frugrad" prune resnet --sparsity 0.4 --units channels $keep -o resnet$keep.safetensors >/dev/null || fail "prune resnet20 $keep"
done
model=$images near "$(model=$images loss resnet--keep-shapes.safetensors)" "$(model=$images loss resnet.safetensors)" 1e-4 ||
    fail "channels removed are not channels of zero"
python3 - <<'PY' # four times as many channels after the first convolution
import json, struct

file = open("resnet--keep-shapes.safetensors", "rb").read()
size = struct.unpack("<Q", file[:8])[0]
head, data, out = json.loads(file[8 : 8 + size]), file[8 + size :], b""
for name, item in sorted((n, i) for n, i in head.items() if n != "__metadata__"):
    begin, end = item["data_offsets"]
    more = 4 if name.startswith(("layer1.0.conv1.", "layer1.0.bn1.")) or name == "layer1.0.conv2.weight" else 1
    if more > 1 and item["shape"]:
        item["shape"][1 if "conv2" in name else 0] *= more
        data_of = data[begin:end] * more
    else:
        data_of = data[begin:end]
    item["data_offsets"] = [len(out), len(out) + len(data_of)]
    out += data_of
text = json.dumps(head).encode()
open("wide.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + out)
PY
expect_error 1 "layer1.0.conv1.weight" eval $images --weights wide.safetensors --eval-batches 1
expect_error 1 "embeddings: resnet has none" prune resnet --sparsity 0.5 --embeddings -o x.safetensors
expect_error 2 "name the --model" prune dense.safetensors --sparsity 0.5 --units heads -o x.safetensors
expect_error 2 "resnet20 has no attention heads" prune resnet --sparsity 0.5 --units heads -o x.safetensors
expect_error 2 "is not for --units" prune run --sparsity 0.5 --units channels --scope row -o x.safetensors
expect_error 2 "keep-shapes" prune run --sparsity 0.5 --keep-shapes -o x.safetensors
expect_error 2 "the checkpoint is of resnet20" prune resnet --sparsity 0.5 --units heads --model gpt2-nano -o x.safetensors
expect_error 1 "no attention heads" prune resnet.safetensors --sparsity 0.5 --units heads --model gpt2-nano -o x.safetensors

# Models of other programs with such names: each layer of the file reads what the one before it makes.
cat >others.py <<'PY'
import json, struct, sys

def write(name, shapes):
    head, at = {}, 0
    for key, shape in shapes.items():
        size = 4
        for n in shape:
            size *= n
        head[key], at = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + size]}, at + size
    text = json.dumps(head).encode()
    open(name, "wb").write(struct.pack("<Q", len(text)) + text + struct.pack("<f", 0.5) * (at // 4))

def read(name):
    data = open(name, "rb").read()
    return {k: v["shape"] for k, v in json.loads(data[8 : 8 + struct.unpack("<Q", data[:8])[0]]).items() if "shape" in v}

layers = {"conv1": [4, 3, 3, 3], "conv2": [8, 4, 3, 3], "conv3": [16, 8, 3, 3], "fc1": [10, 64], "fc2": [5, 10]}
if sys.argv[1] == "write":
    deep = {f"{k}.{end}": v if end == "weight" else v[:1] for k, v in layers.items() for end in ("weight", "bias")}
    norms = {"bn1": 4, "bn2": 8, "bn3": 16, "bn4": 10}
    ends = ("weight", "bias", "running_mean", "running_var")
    write("deep-names.safetensors", deep)
    write("norm-names.safetensors", deep | {f"{k}.{end}": [n] for k, n in norms.items() for end in ends})
else:
    shape = read(sys.argv[2])
    makes = {k: shape[k + ".weight"][0] for k in layers}
    for name, dims in shape.items():
        layer = name.split(".")[0].replace("bn4", "fc1").replace("bn", "conv")
        assert name.endswith(".weight") and len(dims) > 1 or dims == [makes[layer]], (name, dims, makes)
    for k, before in (("conv2", "conv1"), ("conv3", "conv2"), ("fc2", "fc1")):
        assert shape[k + ".weight"][1] == makes[before], (k, shape)
    assert shape["fc1.weight"][1] == 4 * makes["conv3"], shape
PY
python3 others.py write
"$frugrad" prune deep-names.safetensors --sparsity 0.5 --units channels -o x.safetensors | grep -q '7 of 14' || fail "prune deep-names"
python3 others.py check x.safetensors || fail "prune breaks a model with three convolutions"
expect_error 1 "no layers with inner channels" prune norm-names.safetensors --sparsity 0.5 --units channels -o x.safetensors

# Recovery: zeros stay zero, nothing is sent of them, and the loss falls.
"$frugrad" train $model --workers 2 --method frugrad --steps 8 --batch 4 --no-eval --json --weights pruned.safetensors \
    --sparse zeros --save recovered >train.json 2>/dev/null || fail "train --sparse zeros"
"$frugrad" export recovered -o recovered.fgc >/dev/null
[ "$(wc -c <recovered.fgc)" -le "$(wc -c <model.fgc)" ] || fail "zeros do not stay zero"
awk "BEGIN { exit !($(loss recovered) < $dense) }" || fail "recovery does not recover: $(loss recovered), before $dense"
expect_error 2 "zeros needs --weights" train $model --sparse zeros --steps 1

# A file whose matrices claim not to have their input first, as one tensor more makes export guess: read dense.
python3 - <<'PY'
import json, struct
data = open("pruned.safetensors", "rb").read()
length, = struct.unpack_from("<Q", data)
head = json.loads(data[8:8 + length])
for name, item in head.items():
    if name != "__metadata__":
        item["data_offsets"] = [at + 8 for at in item["data_offsets"]]
head = {"embed.c_attn.weight": {"dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8]}, **head}
text = json.dumps(head).encode()
text += b" " * (-len(text) % 8)
open("turned.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + bytes(8) + data[8 + length:])
PY
"$frugrad" export turned.safetensors -o turned.fgc >/dev/null
[ "$(loss turned.fgc)" = "$dense" ] || fail "loss with turned rows: $(loss turned.fgc), without: $dense"
"$frugrad" sample --model gpt2-nano --weights turned.fgc --prompt a --length 8 --temperature 0 >turned.text || fail "sample turned.fgc"
cmp pruned.safetensors.text turned.text || fail "sample differs with turned rows"
expect_error 1 "inputs of tensor 'h.0.attn.c_attn.weight'" prune turned.safetensors --sparsity 0.5 --by wanda $model \
    --eval-batches 1 --batch 2 -o x.safetensors

# Bad input.
head -c 5000 model.fgc >cut.fgc
expect_error 1 "ends inside a record" eval $model --weights cut.fgc
sed 's/^FGC1/FGC9/' model.fgc >new.fgc
expect_error 1 "has version '9'" eval $model --weights new.fgc
expect_error 1 "is a compact file" diff model.fgc pruned.safetensors -o patch
expect_error 1 "both input and output" prune pruned.safetensors --sparsity 0.5 -o pruned.safetensors
# A run is not overwritten, whether by its newest checkpoint, another one, or one that it does not have yet.
cp run/step-000000006.safetensors newest.safetensors
ln -s run link
for command in "prune --sparsity 0.5" export; do
    for in in run link/ run/step-000000006.safetensors; do
        expect_error 1 "both input and output" $command $in -o run/step-000000006.safetensors
        expect_error 1 "name of a checkpoint" $command $in -o run/step-000000007.safetensors
        (cd run && expect_error 1 "name of a checkpoint" $command ../$in -o step-000000007.safetensors)
    done
    "$frugrad" $command run -o run/weights.safetensors >/dev/null || fail "$command into the directory of the run"
    expect_error 1 "name of a checkpoint" $command run -o step-000000006.safetensors
done
cmp run/step-000000006.safetensors newest.safetensors || fail "the newest checkpoint was overwritten"
expect_error 2 'go together' sample --model gpt2-nano --weights dense.safetensors --activations 0.5
expect_error 2 'must fit' sample --model gpt2-nano --weights dense.safetensors --activations 0.5 --calibration some.txt --length 5000
expect_error 2 'activations' eval $model --weights dense.safetensors --activations 2
expect_error 2 "either --sparsity SHARE or --pattern" prune run -o x.safetensors
expect_error 2 "is not N:M" prune run --pattern 4:2 -o x.safetensors
expect_error 2 "needs --model and --data" prune run --sparsity 0.5 --by wanda -o x.safetensors
expect_error 2 "compact files" export run --code int8 -o x.safetensors
expect_error 2 "with -o" export run
expect_error 1 "cannot open" prune missing --sparsity 0.5 -o x.safetensors
mkdir empty
expect_error 1 "no checkpoint" export empty -o x.fgc
