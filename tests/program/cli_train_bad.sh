#!/usr/bin/env bash
# Whatever is wrong with the options of train, eval and sample, there is one clear line, exit status 1 or 2, and nothing on
# stdout.
. "$(dirname "$0")/../support/script.sh"
cd "$work"

# wrong STATUS PATTERN ARGUMENTS... -- one line (and hints) on stderr that matches, that status, nothing on stdout
wrong() {
    local status=$1 pattern=$2 code=0
    shift 2
    "$FRUGRAD" "$@" >out 2>err || code=$?
    [ "$code" = "$status" ] || fail "'$*' exits with $code, not $status: $(cat err)"
    [ ! -s out ] || fail "'$*' prints on stdout: $(cat out)"
    [ "$(grep -vc '^  hint: ' err)" = 1 ] || fail "'$*': not one line but: $(cat err)"
    grep -Eq -- "$pattern" err || fail "'$*' does not print '$pattern' but: $(cat err)"
}
train() { wrong "$1" "$2" train --model mlp --samples 500 --steps 2 --quiet "${@:3}"; }

# -- the command line
wrong 2 -- '--model missing' train
wrong 2 'did you mean --workers' train --model mlp --workes 2
wrong 2 "unexpected argument 'mlp'" train mlp
train 2 "'0' is not a whole number from 1" --workers 0
train 2 "'0' is not a whole number from 1" --batch 0
train 2 "'nan' is not a number" --rate nan
train 2 "'-1' is not a number" --clip -1
train 2 "'Q' is not a unit" --bucket 1Q
train 2 "'1' is out of range: 1024 to" --bucket 1
train 2 'give one of them' --epochs 1
train 2 'give one of them' --weights a --resume b
train 2 -- '--resume of what' --resume
train 2 "'tst'" --judge tst
train 2 'needs --metrics FILE' --metrics-layers
train 2 -- '--save-every needs --save' --save-every 3
train 2 "did you mean 'frugrad'" --method fugrad
train 2 "'feedbak'" --method frugrad,feedbak=none

# -- options that would do nothing
train 2 'theta=0.5 does nothing here' --method frugrad,theta=0.5
train 2 'layers=sensitivity needs a weight for each tensor' --method frugrad,layers=sensitivity
train 2 'score=given needs a number' --method frugrad,unit=head,score=given
train 2 'have no effect without reduce=gossip' --method frugrad,gamma=0.5
train 2 -- '--keep is about checkpoints' --keep 2
train 2 -- '--eval-every does nothing' --no-eval --eval-every 2
train 2 -- '--no-overlap does nothing' --alone --no-overlap
train 2 -- '--metrics-layers does nothing' --alone --metrics m --metrics-layers
wrong 2 -- '--augment is for images' train --model gpt2-nano --steps 1 --augment none
wrong 2 -- '--samples is for builtin data; --hold-out and --steps limit' train --model lenet --data fashion-mnist --samples 100 --steps 1
train 2 'ef21 sends changes' --method frugrad,feedback=ef21 --optimizer sgd

# -- what all workers refuse is reported once
train 2 'unit=head' --workers 3 --method heads
train 2 'feedback=merged, dgc or ef21' --workers 3 --method topk --optimizer merged
train 1 'the loss is not finite' --workers 3 --rate 1e6 --steps 9 --clip 0 --schedule cosine
wrong 1 'the gradient is not finite' train --model lenet --samples 100 --batch 4 --workers 3 --rate 1e6 --steps 9 --clip 0 --schedule cosine --quiet
wrong 1 'evaluation is not finite' train --model mlp --samples 100 --batch 4 --workers 2 --rate 1e6 --steps 2 --clip 0 --schedule cosine --quiet
wrong 1 'has a vocabulary of 300 tokens|train.txt' train --model gpt2-nano:vocab=300 --data . --steps 1
wrong 2 'layers=2000: expected a whole number from 1 to 1024' train --model gpt2:layers=2000 --steps 1

# -- memory: what does not fit is refused with numbers before it starts
wrong 1 'gpt2-nano would take about .* but 1.00 MB is what --memory allows: each of 2 workers here takes weights 401' \
    train --model gpt2-nano --workers 2 --steps 1 --memory 1M
grep -q 'hint: --memory [0-9]*M starts the run' err || fail "no hint: $(cat err)"
train 2 "cannot be split into more than 8 micro-batches" --batch 8 --accumulate 9
train 2 'mlp has no blocks' --recompute

# -- who asks for the test split is not judged by another one
mkdir notest
printf '%0999d' 1 | tee notest/train.txt >notest/valid.txt
wrong 1 'notest: has no test split' train --model gpt2-nano:layers=1 --data notest --tokens bytes --judge test --steps 1
train 2 'give one of them' --judge test --hold-out 10
train 1 'has a validation split of [0-9]+ samples, so --hold-out 10 .*--judge valid' --judge valid --hold-out 10

# -- workers that gossip differ until the end, and a checkpoint has one set of weights
train 1 '--resume: a run with reduce=gossip cannot be resumed' --workers 2 --method gsgd --save gossip --resume gossip
train 1 '--save-every: with reduce=gossip' --workers 2 --method gsgd --save gossip --save-every 1
train 2 'choose feedback=none' --method gsgd,feedback=merged

# -- words that only the trainer knows
wrong 2 'did you mean lenet' train --model lenett --steps 1
wrong 2 'sideways' train --model mlp --steps 1 --samples 500 --schedule sideways --quiet
wrong 2 'sgdd' train --model mlp --steps 1 --samples 500 --optimizer sgdd --quiet
wrong 2 'layerz' train --model gpt2:layerz=3 --steps 1

# -- files of options
line() {
    printf '%s\n' "${@:2}" >run.conf
    wrong 2 "$1" train --config run.conf
}
line "run.conf: line 3: train has no option 'workes'" 'model = mlp' '# fine' 'workes = 3'
grep -q 'did you mean workers?' err || fail "no hint: $(cat err)"
line 'run.conf: line 2: batch needs a value' 'model = mlp' 'batch ='
line "run.conf: line 1: 'no-eval' is a switch: yes or no, not 'perhaps'" 'no-eval = perhaps' 'model = mlp'
line 'run.conf: line 1: a file cannot name another one' 'config = other.conf'
line "'many' is not a whole number" 'model = mlp' 'workers = many'
wrong 1 'none.conf: cannot open' train --config none.conf
printf 'model = mlp\n\0\n' >run.conf
wrong 1 'run.conf: byte 12 is zero' train --config run.conf

# -- data
wrong 1 'no/such/place' train --model mlp --steps 2 --quiet --data no/such/place
grep -q "hint: 'no/such/place' does not exist" err || fail "no message that the folder is missing: $(cat err)"
mkdir empty
wrong 1 "empty: expected a directory with 'train-images-idx3-ubyte' .*'data_batch_1.bin'" train --model mlp --steps 2 --quiet --data empty
wrong 1 "empty: expected .*train.txt" train --model gpt2-nano --data empty --steps 1
wrong 1 'empty: expected .*sst-2, cola' train --model bert-mini --data empty --tokens x --steps 1
mkdir cut
printf '\0\0\10\3\0\0\0\5\0\0\0\34\0\0\0\34short' >cut/train-images-idx3-ubyte
printf '\0\0\10\1\0\0\0\5abcde' >cut/train-labels-idx1-ubyte
cp cut/train-images-idx3-ubyte cut/t10k-images-idx3-ubyte
cp cut/train-labels-idx1-ubyte cut/t10k-labels-idx1-ubyte
wrong 1 'cut/.*idx' train --model mlp --steps 2 --quiet --data cut

# -- weights and checkpoints
"$FRUGRAD" train --model mlp --samples 500 --steps 2 --save good --quiet >/dev/null
good=good/step-000000002.safetensors
train 1 'no/such' --resume no/such
train 1 'no/such.safetensors' --weights no/such.safetensors
head -c 1000 $good >cut.safetensors
train 1 'cut.safetensors' --resume cut.safetensors
train 1 'cut.safetensors' --weights cut.safetensors
train 1 'empty' --resume empty
train 1 'empty' --resume empty --save elsewhere
train 1 'no/such' --resume no/such --save elsewhere
train 1 '--seed' --resume $good --seed 2
train 1 '--batch' --resume $good --batch 7
train 1 'made with --rate 0.05; this command asks for 0.3$' --resume $good --rate 0.3
train 1 'made with --samples 500; this command asks for 400$' --resume $good --samples 400
train 1 'made with --augment crop.mirror; this command asks for none$' --resume $good --no-augment
train 2 '--augment' --augment sideways
train 2 '--no-augment' --no-augment --augment crop
train 1 'made with --method block=256; this command asks for block=1024$' --resume $good --method frugrad,block=1024
train 1 'made with --method schedule=constant:0.9375,.*; this command asks for schedule=constant:0,.*reduce=dense' \
    --resume $good --method dense
train 1 '--method segment=block,.*; this command asks for segment=tensor,' --resume $good --method topk
train 1 'made with --optimizer merged; this command asks for sgd$' --resume $good --optimizer sgd
grep -q '^  hint: give --optimizer as in the first run' err || fail "no hint at what to change: $(cat err)"
wrong 1 '--model|good' train --model lenet --samples 500 --steps 3 --quiet --resume $good
touch file
train 1 'file' --save file/under
timeout 20 "$FRUGRAD" train --model mlp --samples 500 --steps 1000000 --quiet --save file/under 2>err && fail "a run that cannot be saved is trained"
grep -q 'file/under: cannot make the directory' err || fail "--save is not checked before the first step: $(cat err)"
train 1 'metrics' --metrics empty/no/metrics

# -- results that cannot be written
for option in --json ''; do
    code=0
    "$FRUGRAD" train --model mlp --samples 500 --steps 1 --quiet $option >/dev/full 2>err || code=$?
    [ $code = 1 ] || fail "a full disk under '$option' gives exit status $code"
done

# -- little memory: OpenBLAS waits for ever for buffers that it cannot have, so the program must see to that; the sizes
# -- that matter depend on the machine
for kilobytes in 60000 100000 130000 200000 300000 500000; do
    for workers in 1 4; do
        code=0
        (ulimit -v $kilobytes && exec timeout -k 1 60 "$FRUGRAD" train --model lenet --samples 500 --steps 2 --quiet \
            --no-eval --threads 1 --workers $workers) >out 2>err || code=$?
        [ $code != 124 ] && [ $code != 137 ] && [ $code != 139 ] ||
            fail "ulimit -v $kilobytes with $workers workers gives exit status $code: $(cat err)"
        [ $code = 0 ] || [ -s err ] || fail "ulimit -v $kilobytes with $workers workers: no reason for status $code"
    done
done

# -- eval and sample
wrong 2 '--model missing' eval
wrong 2 '--weights FILE or --resume PATH missing' eval --model mlp --data builtin
wrong 2 '--data DIR missing' eval --model mlp --weights $good
wrong 2 -- '--samples is for builtin data; --eval-batches limits other data' \
    eval --model lenet --weights $good --data fashion-mnist --samples 4
wrong 2 'did you mean test' eval --model mlp --weights $good --data builtin --split tst
wrong 1 'no/such' eval --model mlp --weights no/such --data builtin
wrong 1 "good/.*: has no tensor '.*' of the model; it has [0-9]+, the first is '" eval --model lenet --weights $good --data builtin
grep -q 'hint: use the --model' err || fail "no way out given: $(cat err)"
tiny=gpt2:layers=1,heads=2,length=16,width
"$FRUGRAD" train --model $tiny=16 --samples 20 --steps 1 --no-eval --save tiny --quiet >/dev/null
wrong 1 "tensor '.*' has shape .*16.*; the model has .*32" eval --model $tiny=32 --weights tiny/step-000000001.safetensors --data builtin
wrong 2 'mlp is not a language model' sample --model mlp --weights $good
wrong 2 '--weights FILE or --resume PATH missing' sample --model gpt2-nano
wrong 2 "'-1' is not a number" sample --model gpt2-nano --weights $good --temperature -1
wrong 1 'no/such' sample --model gpt2-nano --weights no/such
wrong 1 'no/such' sample --model gpt2-nano --weights $good --tokens no/such
wrong 1 'empty' sample --model gpt2-nano --resume empty
wrong 1 'good' sample --model gpt2-nano --weights $good

code=0
ASAN_OPTIONS=$leaks "$FRUGRAD" train --model mlp --samples 500 --steps 3 --resume cut.safetensors 2>err || code=$?
[ $code = 1 ] || fail "leaks: $(cat err)"
echo "cli_train_bad: all right"
