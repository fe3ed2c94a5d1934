#!/usr/bin/env bash
# `frugrad train` learns, prints summary and metrics, and resumes after Ctrl-C and after kill -9 with the same
# bits as a run that was never stopped; threads and MPI processes give the same weights; `frugrad eval` agrees.
. "$(dirname "$0")/../support/script.sh"
cd "$work"

short=${FRUG_TEST_SHORT:+20} # steps of runs that take long because they have to learn; sanitizers do not need that
steps=240
common="--model mlp --samples 2000 --batch 16 --rate 0.02"
last=step-$(printf %09d $steps).safetensors

# -- a whole run: JSON and nothing else on stdout, plain lines on stderr, a line of metrics for every step
"$FRUGRAD" train $common --workers 2 --steps $steps --save whole --save-every 80 --keep 2 --metrics whole.jsonl \
    --tensorboard board --json >whole.json 2>whole.err || fail "a run fails: $(cat whole.err)"
python3 - $steps <<'PY' || fail "the summary or the metrics are not as promised"
import json, os, sys

steps = int(sys.argv[1])
summary = json.load(open("whole.json"))
for name in """accuracy loss train_loss bytes_sent bytes_dense density_mean model_state_bytes weight_bytes
        gradient_bytes library_bytes activation_bytes peak_rss_bytes step_ms seconds time_ms config method seed steps
        step workers batch threads params optimizer algorithm gain checkpoint""".split():
    assert summary[name] is not None, name
for name in "data forward backward blocked compress wait wire decode optimizer".split():
    assert summary["time_ms"][name] >= 0, (name, summary["time_ms"])
assert summary["perplexity"] is None and summary["correlation"] is None and summary["interrupted"] is False, summary
assert (summary["step"], summary["steps"], summary["workers"], summary["seed"]) == (steps, steps, 2, 1), summary
assert 0 < summary["bytes_sent"] < 0.5 * summary["bytes_dense"], summary
assert 0 < summary["density_mean"] < 0.2, summary
assert summary["model_state_bytes"] >= summary["weight_bytes"] >= 4 * summary["params"], summary
assert summary["peak_rss_bytes"] > summary["model_state_bytes"], summary
assert summary["accuracy"] > 0.3, summary  # ten classes: chance is 0.1

lines = [json.loads(line) for line in open("whole.jsonl")]
taken = [line for line in lines if line["kind"] == "step"]
assert [line["step"] for line in taken] == list(range(1, steps + 1)), "not every step has its line"
first, end = (sum(line["loss"] for line in part) / 20 for part in (taken[:20], taken[-20:]))
assert end < 0.8 * first, f"the loss goes from {first} to {end}"
judged = [line for line in lines if line["kind"] != "step"]
assert judged and abs(judged[-1]["accuracy"] - summary["accuracy"]) < 1e-12, judged[-1:]
assert any("tfevents" in name for name in os.listdir("board")), os.listdir("board")
PY
grep -q "^step 1 of $steps " whole.err || fail "the first step is not shown: $(cat whole.err)"
grep -q "^step $steps of $steps " whole.err || fail "the last step is not shown: $(cat whole.err)"
grep -q '^after step .*accuracy .* %, loss ' whole.err || fail "no evaluation is shown: $(cat whole.err)"
if grep -q $'[\r\033]' whole.err; then fail "a bar is drawn where there is no terminal"; fi
[ "$(ls whole)" = "$(printf '%s\n' step-000000160.safetensors $last)" ] || fail "--keep 2 leaves: $(ls whole)"

# -- the same from a file of options, which the command line overrides
cat >run.conf <<CONF
# how the first run was started
model = mlp
--samples 2000
batch 16        # of each worker
rate=0.02
workers = 3
steps = $steps
save = file
quiet = yes
CONF
"$FRUGRAD" train --config run.conf --workers 2 >file.txt 2>file.err || fail "--config fails: $(cat file.err)"
[ ! -s file.err ] || fail "quiet = yes is not: $(cat file.err)"
cmp -s whole/$last file/$last || fail "options out of a file give other weights"
for word in accuracy loss sent density step exchange 'model state' memory method optimizer checkpoint; do
    grep -q "^  $word  *" file.txt || fail "the summary has no $word: $(cat file.txt)"
done

# -- Ctrl-C: a checkpoint, the command to resume, exit code 130; then the same bits
arguments="$common --workers 2 --steps $steps --save-every 80"
begin() { # begin DIR: start a run and wait until it is under way
    env --default-signal=INT "$FRUGRAD" train $arguments --save $1 --metrics $1.jsonl >$1.txt 2>$1.err &
    child=$!
    for _ in $(seq 2000); do
        [ "$(cat $1.jsonl 2>/dev/null | wc -l)" -lt 5 ] || return 0
        sleep 0.01
    done
    fail "the run does not get under way: $(cat $1.err)"
}
kill_9() { # kill_9 ERRORS: kill the run in the background, which must not have ended by itself
    kill -9 $child 2>/dev/null || true
    code=0
    wait $child 2>/dev/null || code=$?
    [ $code = 137 ] || fail "the run had ended before it was killed, with exit status $code: $(cat $1)"
}
same_end() { # same_end DIR: it holds what the run without a break holds
    cmp -s whole/$last $1/$last || fail "$1: the weights after a break are not those of a run without one"
    python3 - $1.jsonl $steps <<'PY' || fail "$1: steps are missing or double in the metrics"
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
assert [line["step"] for line in lines if line["kind"] == "step"] == list(range(1, int(sys.argv[2]) + 1))
PY
}
begin stopped
kill -INT $child
code=0
wait $child || code=$?
[ $code = 130 ] || fail "Ctrl-C: exit status $code, not 130: $(cat stopped.err)"
grep -q 'interrupted after step .*; to resume:$' stopped.err || fail "Ctrl-C: $(cat stopped.err)"
again=$(sed -n 's/^  \(.* train .*\)$/\1/p' stopped.err)
[ -n "$again" ] || fail "Ctrl-C does not print how to resume: $(cat stopped.err)"
eval "$again" >again.txt 2>again.err || fail "'$again' fails: $(cat again.err)"
grep -q 'resuming after step' again.err || fail "no message that it resumes: $(cat again.err)"
same_end stopped

# -- Ctrl-C during an evaluation: it ends after a batch, not after all of them
env --default-signal=INT "$FRUGRAD" train --model lenet --samples 2000000 --steps 1 --batch 16 --save evaluated >evaluated.txt 2>evaluated.err &
child=$!
until grep -q '^step 1 of 1' evaluated.err || ! kill -0 $child 2>/dev/null; do sleep 0.01; done
kill -INT $child || fail "the evaluation of 250000 images has ended already"
code=0
wait $child || code=$?
[ $code = 130 ] || fail "Ctrl-C during an evaluation: exit status $code, not 130: $(cat evaluated.err)"
grep -q 'interrupted after step 1 of 1; to resume:$' evaluated.err || fail "Ctrl-C during an evaluation: $(cat evaluated.err)"
ls evaluated/step-000000001.safetensors >/dev/null || fail "Ctrl-C during an evaluation: no checkpoint"
if grep -q accuracy evaluated.txt; then fail "an evaluation that was stopped gives an accuracy: $(cat evaluated.txt)"; fi

# -- Ctrl-C after an evaluation: its quality is not that of the weights at the end; until then no other run may save there
env --default-signal=INT "$FRUGRAD" train --model lenet --steps 100000 --batch 16 --eval-every 20 --eval-batches 1 --save rated --json >rated.json 2>rated.err &
child=$!
until grep -q '^after step 40' rated.err || ! kill -0 $child 2>/dev/null; do sleep 0.01; done
code=0
"$FRUGRAD" train --model lenet --steps 1 --no-eval --workers 2 --save rated --resume >second.txt 2>second.err || code=$?
[ $code = 1 ] && [ "$(grep -c 'rated is in use by another run' second.err)" = 1 ] || fail "a second run in one directory: $code $(cat second.err)"
kill -INT $child || fail "the run ends by itself: $(cat rated.err)"
wait $child || true
python3 - <<'PY' || fail "the quality of earlier weights: $(cat rated.json)"
import json
r = json.load(open("rated.json"))
assert r["interrupted"] and r["step"] >= 40 and (r["accuracy"] is None or r["step"] % 20 == 0), r
PY

# -- kill -9, at any moment: the newest complete checkpoint is there, or none yet
begin killed
until ls killed/step-*.safetensors >/dev/null 2>&1 || ! kill -0 $child 2>/dev/null; do sleep 0.01; done
kill_9 killed.err
"$FRUGRAD" train $arguments --save killed --resume --metrics killed.jsonl >killed.txt 2>killed.err ||
    fail "going on after kill -9 fails: $(cat killed.err)"
same_end killed

# -- metrics into a pipe, also of a run that resumes: every line arrives, and nobody waits
mkfifo pipe
for more in '--steps 5' '--steps 7 --resume'; do
    timeout 60 cat pipe >piped &
    child=$!
    timeout 60 "$FRUGRAD" train $common --no-eval --quiet --save pipes $more --metrics pipe >piped.txt 2>&1 || fail "a pipe: $(cat piped.txt)"
    wait $child || fail "the reader of a pipe"
    grep -q '"step":5' piped || [ "$more" != '--steps 5' ] || fail "a pipe: $(cat piped)"
done
grep -q '"step":7' piped || fail "a pipe of a run that resumes: $(cat piped)"

# -- an image that cannot be read by the evaluation: the training before it is saved
mkdir -p images/{train,val}/{a,b}
python3 - <<'PY'
import struct, zlib
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
for folder, shade in (("a", 40), ("b", 200)):
    for split in ("train", "val"):
        for i in range(4):
            rows = b"".join(b"\0" + bytes((shade + i + k) % 256 for k in range(96)) for _ in range(32))
            png = (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 32, 32, 8, 2, 0, 0, 0))
                   + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
            open(f"images/{split}/{folder}/{i}.png", "wb").write(png[:60] if (split, folder, i) == ("val", "b", 2) else png)
PY
code=0
"$FRUGRAD" train --model resnet20 --data images --batch 4 --epochs 1 --save images.run --quiet >images.txt 2>images.err || code=$?
[ $code = 1 ] && grep -q 'val/b/2.png: invalid PNG' images.err || fail "an image that cannot be read: $code $(cat images.err)"
ls images.run/step-000000002.safetensors >/dev/null || fail "an image that cannot be read: the training before it is lost"
cp images/val/b/1.png images/val/b/2.png
"$FRUGRAD" train --model resnet20 --data images --batch 4 --epochs 1 --resume images.run --quiet >images.txt 2>&1 || fail "$(cat images.txt)"
grep -q accuracy images.txt || fail "a run at its end is not evaluated: $(cat images.txt)"

# -- an image that becomes unreadable in training: the steps before it are saved, and the run goes on when it is mended
on_images="--model resnet20 --data images --batch 1 --epochs 2 --threads 1 --no-eval --quiet"
for workers in 1 2; do
    "$FRUGRAD" train $on_images --workers $workers --save mended >images.txt 2>&1 || fail "$(cat images.txt)"
    saved=0
    for image in images/train/a/{0,1,2}.png; do
        mv "$image" away.png && head -c 60 away.png >"$image"
        code=0
        "$FRUGRAD" train $on_images --workers $workers --save broken >images.txt 2>images.err || code=$?
        [ $code = 1 ] && [ "$(grep -c "$image: invalid PNG" images.err)" = 1 ] || fail "$image, $workers workers: $code $(cat images.err)"
        mv away.png "$image"
        [ -z "$(ls broken)" ] || saved=$((saved + 1))
        "$FRUGRAD" train $on_images --workers $workers --resume broken --save broken >images.txt 2>&1 || fail "$(cat images.txt)"
        file=step-$(printf %09d $((16 / workers))).safetensors
        cmp "mended/$file" "broken/$file" || fail "another end after an image that could not be read"
        rm -r broken
    done
    [ $saved -ge 2 ] || fail "steps before an image that cannot be read are lost: $saved of 3 are saved"
    rm -r mended
done

# -- one command for the first start and every restart, killed before the first checkpoint and after; with threads and
# -- processes
mpi=
[ ! -x "$(dirname "$FRUGRAD")/frugrad-mpi" ] || ! command -v mpirun >/dev/null || mpi='mpirun -n 2'
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
mkdir once # a directory that is there but empty
for start in '' ${mpi:+"$mpi"}; do
    timeout 60 $start "$FRUGRAD" train $common --workers 2 --steps 3 --save once --resume --quiet >once.txt 2>once.err ||
        fail "--resume before the first checkpoint: $(cat once.err)"
    grep -qx '  hint: once has no checkpoint yet: the run starts from the beginning' once.err ||
        fail "--resume before the first checkpoint prints: $(cat once.err)"
    rm -r once # or is not there
done

# -- a process that is stopped: the others end after --timeout with an error that names it
if [ -n "$mpi" ]; then
    $mpi "$FRUGRAD" train $common --steps 1000000 --no-eval --quiet --timeout 4 --metrics halt.jsonl >/dev/null 2>halt.err &
    child=$!
    for _ in $(seq 2000); do
        [ "$(cat halt.jsonl 2>/dev/null | wc -l)" -lt 5 ] || break
        sleep 0.01
    done
    ranks=($(cat /proc/$child/task/$child/children))
    kill -STOP ${ranks[1]}
    code=0
    wait $child || code=$?
    kill -KILL ${ranks[1]} 2>/dev/null || true
    [ $code != 0 ] || fail "a stopped process: exit status 0"
    grep -q 'timeout: rank 0 received nothing from rank 1 for 4 seconds' halt.err || fail "a stopped process: $(cat halt.err)"
fi
"$FRUGRAD" train $common --workers 2 --steps 2 --timeout 0 >/dev/null 2>halt.err && fail "--timeout 0 is taken"
grep -q -- "--timeout" halt.err || fail "--timeout 0: $(cat halt.err)"

# -- more workers count fewer steps: what the run with them has written is the newest, whatever the steps say
sooner="$common --no-eval --quiet"
"$FRUGRAD" train $sooner --workers 1 --epochs 1 --save fewer --resume >/dev/null 2>&1 || fail "one worker"
before=$(ls fewer)
"$FRUGRAD" train $sooner --workers 2 --epochs 40 --save-every 5 --save fewer --resume >/dev/null 2>fewer.err &
child=$!
until [ "$(ls fewer)" != "$before" ] || ! kill -0 $child 2>/dev/null; do sleep 0.01; done
kill_9 fewer.err
grep -q 'made with 1 workers, this run has 2' fewer.err || fail "one worker, then two: $(cat fewer.err)"
"$FRUGRAD" train $sooner --workers 2 --steps 1 --save other --resume fewer >/dev/null 2>again.err ||
    fail "$(cat again.err)"
! grep -q 'workers' again.err || fail "it continued from the run with one worker: $(cat again.err)"

# -- --weights are the initial weights: the resume command may have them, and --resume overrides them
plain=$arguments
arguments="$plain --weights whole/$last"
begin weighted
kill -INT $child
wait $child || true
again="$(sed -n 's/^  \(.* train .*\)$/\1/p' weighted.err) --steps 1" # which are over: it is enough that it begins
[[ "$again" == *"--weights whole/$last"*'--resume --steps'* ]] || fail "the command to resume: $again"
eval "$again" >again.txt 2>again.err || fail "'$again' fails: $(cat again.err)"
grep -q 'no steps are left' again.err || fail "weights won over the checkpoint: $(cat again.err)"
printf '%s\n' model=mlp samples=2000 "weights=whole/$last" save=filed quiet=yes >weights.conf
"$FRUGRAD" train --config weights.conf --steps 2 >again.txt 2>again.err || fail "$(cat again.err)"
"$FRUGRAD" train --config weights.conf --steps 2 --resume >again.txt 2>again.err ||
    fail "--resume over a file with weights: $(cat again.err)"
grep -q 'no steps are left' again.err && grep -q '^  accuracy' again.txt ||
    fail "a run that is at its end prints no message, or not its quality: $(cat again.err again.txt)"
arguments=$plain

# -- eval gives the results of the run
"$FRUGRAD" eval --model mlp --samples 2000 --data builtin --weights whole/$last --json >eval.json
"$FRUGRAD" eval --model mlp --samples 2000 --data builtin --resume whole/$last --workers 2 >eval.txt
python3 - <<'PY' || fail "eval does not find what the run found: $(cat eval.json eval.txt)"
import json
run, found = json.load(open("whole.json")), json.load(open("eval.json"))
assert found["accuracy"] == run["accuracy"] and abs(found["loss"] - run["loss"]) < 1e-6 * run["loss"], (found, run)
assert abs(found["error"] + found["accuracy"] - 1) < 1e-12 and found["split"] == "test", found
assert found["seconds"] > 0 and found["peak_rss_bytes"] > 0 and found["batch"] > 0, found
assert "accuracy %.2f %%" % (100 * run["accuracy"]) in open("eval.txt").read()
PY

# -- a language model memorizes a text, has a perplexity, and samples the text
mkdir text # 25 letters over and over: windows of 32 begin at each of them
python3 -c 'print("the cat sat on the mats. " * 2000)' >text/train.txt
cp text/train.txt text/test.txt
"$FRUGRAD" train --model gpt2:layers=1,width=32,heads=2,length=32 --data text --tokens bytes --steps ${short:-300} --rate 0.01 \
    --eval-batches 4 --save words --json --quiet >words.json || fail "a language model does not train"
write="sample --model gpt2:layers=1,width=32,heads=2,length=32 --resume words --prompt the --length 60"
"$FRUGRAD" $write --temperature 0 >written || fail "sample fails"
"$FRUGRAD" $write --seed 3 >one
"$FRUGRAD" $write --seed 3 >two
cmp -s one two || fail "the same seed writes another text"
[ -n "$short" ] || python3 - <<'PY' || fail "the language model has not learnt: $(cat words.json written)"
import json
words = json.load(open("words.json"))
assert words["perplexity"] < 3 and words["split"] == "test", words
assert "on the mats. the cat sat" in open("written").read()
PY

# -- a head that a file of weights lacks is initialized at random, with one message
tiny=layers=1,width=16,heads=2,length=16
"$FRUGRAD" train --model bert-mlm-mini:$tiny --samples 64 --steps 2 --save hidden --quiet >tiny.txt || fail "BERT"
"$FRUGRAD" train --model bert-mini:$tiny --samples 64 --steps 2 --workers 2 --weights hidden/step-000000002.safetensors \
    --quiet >tiny.txt 2>tiny.err || fail "fine-tuning: $(cat tiny.err)"
[ "$(grep -c 'no values for 4 tensors of the model' tiny.err)" = 1 ] || fail "no hint about a new head: $(cat tiny.err)"

# -- MPI: the program finds frugrad-mpi; processes give the bits of threads; processes that disagree end with an error
mpi=$(dirname "$FRUGRAD")/frugrad-mpi
if [ -x "$mpi" ] && command -v mpirun >/dev/null; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
    timeout 60 mpirun -n 2 "$FRUGRAD" train $arguments --save mpi --json >mpi.json 2>mpi.err ||
        fail "mpirun fails: $(cat mpi.err)"
    python3 -c 'import json; assert json.load(open("mpi.json"))["workers"] == 2' || fail "mpirun: $(cat mpi.json)"
    cmp -s whole/$last mpi/$last || fail "processes give other weights than threads"
    mkdir here there # of which only worker 0 has the checkpoints
    (cd here && "$FRUGRAD" train $common --workers 2 --steps 3 --save run --quiet >/dev/null) || fail "three steps"
    timeout 60 mpirun -n 1 -wdir here "$FRUGRAD" train $common --steps 6 --resume run --quiet : \
        -n 1 -wdir there "$FRUGRAD" train $common --steps 6 --resume run --quiet >odd.txt 2>odd.err || fail "$(cat odd.err)"
    ls here/run/step-000000006.safetensors >/dev/null && [ ! -e there/run ] || fail "resuming from worker 0's directory"
    gossip="$common --steps 20 --method gsgd --eval-every 10 --quiet"
    "$FRUGRAD" train $gossip --workers 3 --save gossip --metrics gossip.jsonl --metrics-layers >gossip.txt || fail "gossip"
    grep -q '"kind":"layers"' gossip.jsonl || fail "gossip has no densities of layers: $(head -3 gossip.jsonl)"
    grep -q 'by gossip; evaluated is the mean of all workers' gossip.txt || fail "gossip: $(cat gossip.txt)"
    timeout 60 mpirun -n 3 "$FRUGRAD" train $gossip --save gossip-mpi >gossip.txt 2>mpi.err || fail "$(cat mpi.err)"
    cmp -s gossip/step-000000020.safetensors gossip-mpi/step-000000020.safetensors ||
        fail "processes that gossip give other weights than threads"
    code=0
    timeout 60 mpirun -n 3 "$FRUGRAD" train --model mlp --samples 500 --steps 9 --rate 1e6 >odd.txt 2>odd.err || code=$?
    [ $code != 0 ] && [ $code != 124 ] && [ "$(grep -c '^frugrad: ' odd.err)" = 1 ] ||
        fail "a loss that is not finite is not reported once: $code $(cat odd.err)"
    code=0
    timeout 60 mpirun -n 3 "$FRUGRAD" train --model mlp --bogus >odd.txt 2>odd.err || code=$?
    [ $code = 2 ] && [ "$(grep -c '^frugrad: ' odd.err)" = 1 ] ||
        fail "a wrong command line is not reported once: $code $(cat odd.err)"
    for wrong in '--accumulate 100000' --recompute '--method gsgd --sparse rigl'; do # found when the job is opened
        code=0
        timeout 60 mpirun -n 2 "$FRUGRAD" train --model mlp --samples 500 $wrong >odd.txt 2>odd.err || code=$?
        [ $code = 2 ] && [ "$(grep -c '^frugrad: ' odd.err)" = 1 ] && [ "$(grep -c '^  hint: ' odd.err)" = 1 ] ||
            fail "$wrong is not reported once: $code $(cat odd.err)"
    done
    code=0
    timeout 60 mpirun -n 2 "$FRUGRAD" >odd.txt 2>odd.err || code=$?
    [ $code = 2 ] && [ "$(grep -c '^Usage: ' odd.err)" = 1 ] || fail "help is not printed once: $code $(cat odd.err)"
    code=0
    timeout 60 mpirun -n 3 "$FRUGRAD" train --model mlp --data no/such >odd.txt 2>odd.err || code=$?
    [ $code != 0 ] && [ $code != 124 ] && [ "$(grep -c '^frugrad: no/such' odd.err)" = 1 ] ||
        fail "data that is missing is not reported once: $code $(cat odd.err)"
    code=0
    timeout 60 mpirun -n 1 "$FRUGRAD" train --model mlp --samples 2000 --steps 9 : \
        -n 1 "$FRUGRAD" train --model mlp --samples 2000 --steps 9 --weights whole/$last >odd.txt 2>odd.err || code=$?
    [ $code != 0 ] && [ $code != 124 ] && grep -q '^frugrad: workers 0 and 1 have different weights' odd.err ||
        fail "workers with other weights: $code $(cat odd.err)"
    for other in '--seed 2' '--batch 8' '--method dense' '--bucket 4096' '--eval-batches 2'; do
        code=0
        timeout 60 mpirun -n 1 "$FRUGRAD" train --model mlp --samples 2000 --steps 9 : \
            -n 1 "$FRUGRAD" train --model mlp --samples 2000 --steps 9 $other >odd.txt 2>odd.err || code=$?
        [ $code != 0 ] && [ $code != 124 ] || fail "workers with another $other: exit status $code"
        grep -q "^frugrad: workers 0 and 1 .*different values of ${other% *}" odd.err ||
            fail "workers with another $other are not accepted: $(cat odd.err)"
    done
else
    echo "cli_train: no MPI here; processes are not tried"
    code=0
    OMPI_COMM_WORLD_SIZE=2 "$FRUGRAD" train $common 2>odd.err || code=$?
    [ $code = 1 ] && grep -q 'one of 2 processes of an MPI job' odd.err || fail "without frugrad-mpi: $(cat odd.err)"
fi

# -- the demo, in short
"$FRUGRAD" demo --data builtin --model mlp --steps 30 --workers 2 >demo.txt 2>demo.err || fail "demo: $(cat demo.err)"
for row in accuracy loss sent density 'model state' 'training time' step; do
    grep -q "^  $row" demo.txt || fail "the demo does not compare $row: $(cat demo.txt)"
done
tail -1 demo.txt | grep -q '^With frugrad the model .* (dense gradients: .*), and each worker sent .* times less\.$' ||
    fail "the demo does not conclude: $(cat demo.txt)"
code=0
"$FRUGRAD" demo --data no/such >demo.txt 2>demo.err || code=$?
[ $code = 1 ] && grep -q 'no/such' demo.err || fail "a demo without data: $code $(cat demo.err)"
for signal in INT TERM; do
    rm demo.err # its steps say that the training is under way
    env --default-signal=INT "$FRUGRAD" demo --data builtin --model mlp --steps 1000000 >demo.txt 2>demo.err &
    child=$!
    until grep -qs '^step' demo.err || ! kill -0 $child; do sleep 0.01; done
    training=$(tr -d ' ' </proc/$child/task/$child/children)
    kill -$signal $child
    code=0
    wait $child || code=$?
    [ $code = 130 ] || fail "SIG$signal: the demo ends with $code: $(cat demo.err)"
    ! kill -0 "$training" 2>/dev/null || fail "SIG$signal ends the demo, but not its training"
done

ASAN_OPTIONS=$leaks "$FRUGRAD" train --model mlp --samples 500 --steps 5 --workers 2 --quiet >/dev/null
# -- every method learns with the optimizer it was published with; what is in use is in header, summary and JSON
enough=${short:+--steps $short} least=${short:+0}
enough=${enough:---epochs 3}
learns() { # METHOD OPTIMIZER LEAST: the shortest command, a rate that was not searched
    "$FRUGRAD" train --model mlp --samples 4000 $enough --workers 2 --method "$1" --json >learned.json 2>learned.err ||
        fail "$1: $(cat learned.err)"
    python3 - "$1" "$2" "${least:-$3}" <<'PY' || fail "$1: $(cat learned.json)"
import json, sys
method, optimizer, least = sys.argv[1:]
r = json.load(open("learned.json"))
assert r["optimizer"].startswith(optimizer), r["optimizer"]
assert r["rate"] == 0.05 and r["clip"] == "auto" and r["schedule"] == "cosine,warmup=10%", r
assert r["accuracy"] > float(least), r["accuracy"]
PY
    grep -q '^rate 0.05, schedule cosine,warmup=10%, clip auto, augmentation ' learned.err || fail "no header: $(cat learned.err)"
}
learns dense sgd: 0.8
learns frugrad merged: 0.8
learns dgc merged: 0.8
learns frugrad,feedback=ef21 merged: 0.8
"$FRUGRAD" train --model mlp --samples 500 --steps 2 --optimizer sgd -q >out 2>err || fail "$(cat err)"
grep -q 'momentum is applied twice' err && grep -q 'no weight decay' err || fail "no warning: $(cat err)"
"$FRUGRAD" train --model mlp --samples 500 --steps 2 --optimizer sgd:momentum=0,decay=0 -q >out 2>err || fail "$(cat err)"
[ ! -s err ] || fail "a warning too many: $(cat err)"
grep -q 'parameters are in tensors that are sent whole' out || fail "no reason for the density: $(cat out)"

# -- trained weights have a rate, a warm-up and a gain of their own, which a resumed run takes from its checkpoint
tuned="--model gpt2-nano --data builtin --workers 2 --batch 4 --no-eval -q"
"$FRUGRAD" train $tuned --steps 2 --save old --json >old.json 2>err || fail "$(cat err)"
grep -q 'cosine,warmup=30%' old.json || fail "another warm-up of a text: $(grep schedule old.json)"
"$FRUGRAD" train $tuned --steps 4 --weights old/step-000000002.safetensors --save tuned --save-every 2 --json >tuned.json 2>err ||
    fail "$(cat err)"
grep -q 'gain=finetune' tuned.json || fail "no gain for trained weights: $(grep optimizer tuned.json)"
grep -q 'cosine,warmup=10%' tuned.json || fail "another warm-up of trained weights: $(grep schedule tuned.json)"
"$FRUGRAD" train $tuned --steps 4 --resume tuned/step-000000002.safetensors --save again >out 2>err || fail "$(cat err)"
cmp tuned/step-000000004.safetensors again/step-000000004.safetensors || fail "a run from weights is resumed with other bits"
# -- only the first process needs the disk with the checkpoints
if [ -x "$mpi" ] && command -v mpirun >/dev/null; then
    mkdir first second
    apart() { timeout 60 mpirun -n 1 --wdir "$PWD/first" "$FRUGRAD" "$@" : -n 1 --wdir "$PWD/second" "$FRUGRAD" "$@"; }
    alone="--model gpt2-nano --data builtin --batch 4 --no-eval -q --save kept --save-every 2"
    apart train $alone --steps 2 --weights "$PWD/old/step-000000002.safetensors" >out 2>err || fail "$(cat err)"
    [ ! -e second/kept ] || fail "the second process wrote a checkpoint"
    apart train $alone --steps 4 --resume kept >out 2>err || fail "a run from weights with one disk: $(cat err)"
fi

echo "cli_train: all right"
