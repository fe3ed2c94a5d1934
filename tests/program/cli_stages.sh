#!/usr/bin/env bash
# Pipeline stages: `frugrad train --stages S` gives the weights of a run without them, over threads and MPI; bytes of
# each stage are in the metrics; a run that was killed resumes with the same bits; a stage that fails ends the
# others at once; what does not fit is refused.
. "$(dirname "$0")/../support/script.sh"
cd "$work"

common="--model gpt2:layers=2,width=16,heads=1,length=16 --batch 8 --accumulate 4 --threads 1 --eval-batches 1 --quiet"
train() { timeout 60 "$FRUGRAD" train $common "$@" >out.txt 2>run.err || fail "$*: $(cat run.err)"; }

# -- bytes: of each stage at each step, and of all in the summary
train --steps 6 --stages 2 --metrics log.jsonl --json --save a
cp out.txt run.json
python3 - <<'PY' || fail "bytes are not as promised"
import json

summary = json.load(open("run.json"))
lines = list(map(json.loads, open("log.jsonl")))
stage = [sum(line.get(f"bytes_stage_{i}", 0) for line in lines if line["kind"] == "stages") for i in range(2)]
assert sum(stage) == summary["bytes_sent"], (stage, summary["bytes_sent"])
assert summary["stages"] == 2 and summary["workers"] == 1, summary
# tied: each of the two links has activations of 8 x 16 x 16 floats one way and gradients the other
assert summary["bytes_dense"] == 6 * 2 * 2 * 8 * 16 * 16 * 4, summary["bytes_dense"]
assert 3 * summary["bytes_sent"] < summary["bytes_dense"], summary
PY

# -- memory: a stage has weights and optimizer states of its own layers
wide="--model gpt2:layers=4,width=256,heads=2,length=8 --batch 4 --accumulate 4 --threads 1 --steps 1 --no-eval --quiet"
timeout 60 "$FRUGRAD" train $wide --method dense --json >whole.json 2>run.err || fail "wide: $(cat run.err)"
timeout 60 "$FRUGRAD" train $wide --method dense --json --stages 4 >staged.json 2>run.err || fail "wide: $(cat run.err)"
python3 - <<'PY' || fail "a stage has more memory than its layers need"
import json

whole, staged = json.load(open("whole.json")), json.load(open("staged.json"))
assert 3.5 * staged["weight_bytes"] < whole["weight_bytes"], (staged, whole)
assert 2.5 * staged["library_bytes"] < whole["library_bytes"], (staged, whole) # with messages between stages
weights = sum(staged["stage_weight_bytes"])
assert len(staged["stage_state_bytes"]) == 4 and abs(weights / whole["weight_bytes"] - 1) < 0.001, staged
assert max(staged["stage_state_bytes"]) < 0.3 * sum(staged["stage_state_bytes"]), staged
PY

# -- MPI: the bits of threads
mpi=$(dirname "$FRUGRAD")/frugrad-mpi
if [ -x "$mpi" ] && command -v mpirun >/dev/null; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
    timeout 60 mpirun -n 2 "$FRUGRAD" train $common --steps 6 --stages 2 --save m >/dev/null 2>run.err ||
        fail "mpirun: $(cat run.err)"
    cmp -s a/step-000000006.safetensors m/step-000000006.safetensors || fail "processes give other weights than threads"
    code=0
    timeout 60 mpirun -n 3 "$FRUGRAD" train $common --steps 6 --stages 2 >/dev/null 2>run.err || code=$?
    [ $code = 2 ] || fail "three processes for two stages: exit status $code"
    [ "$(grep -c 'has started 3 processes' run.err)" = 1 ] || fail "three processes: $(cat run.err)"
    [ "$(grep -c '  hint: ' run.err)" = 1 ] || fail "three processes print a hint each: $(cat run.err)"

    # each stage loads its part of a file: it must be the same file
    cp a/step-000000006.safetensors one.safetensors
    train --steps 2 --seed 2 --save other
    if timeout 60 mpirun -n 1 "$FRUGRAD" train $common --steps 6 --stages 2 --weights one.safetensors : \
        -n 1 "$FRUGRAD" train $common --steps 6 --stages 2 --weights other/step-000000002.safetensors \
        >/dev/null 2>run.err; then
        fail "stages start from different files"
    fi
    grep -q 'have different weights before training' run.err || fail "different files: $(cat run.err)"

    # a stage that cannot send a message, in place of an error of its own: the others end long before their timeout
    cat >fault.c <<'C'
#include <mpi.h>
int MPI_Isend(const void *data, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request) {
    static int left = 20; /* lengths of messages to the stage before; other tags are collective */
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 1 && to == 0 && tag >= 8 && n == 8 && --left == 0)
        return MPI_ERR_NO_MEM;
    return PMPI_Isend(data, n, type, to, tag, comm, request);
}
C
    if [ -n "$MPICC" ] && "$MPICC" -shared -fPIC -o fault.so fault.c 2>/dev/null; then
        code=0
        ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0" \
            timeout 60 mpirun -n 4 -x LD_PRELOAD="$PWD/fault.so" "$FRUGRAD" train $common --steps 60 --stages 4 \
            --timeout 600 >/dev/null 2>run.err || code=$?
        [ $code -ne 0 ] || fail "a stage that cannot send is no error"
        [ $code -ne 124 ] || fail "a stage that cannot send: the others wait for it"
        grep -q 'failed to send to rank 0' run.err || fail "a stage that cannot send: $(cat run.err)"
        grep -q 'stage 1 has failed' run.err || fail "stage 0 does not name the stage that failed: $(cat run.err)"
    fi
fi

# -- killed at any moment, and started again with the same command
long="--steps 60 --stages 3 --save-every 1"
train $long --save b
"$FRUGRAD" train $common $long --save c --resume >/dev/null 2>run.err &
for ((i = 0; i < 600; i++)); do
    ls c/step-00000000[3-9]* >/dev/null 2>&1 && break
    sleep 0.02
done
kill -9 $! 2>/dev/null || true
wait $! 2>/dev/null || true
train $long --save c --resume
cmp -s b/step-000000060.safetensors c/step-000000060.safetensors || fail "other weights after a kill"

# -- refusals
refused() {
    local text=$1
    shift
    if "$FRUGRAD" train $common --steps 4 "$@" >/dev/null 2>run.err; then fail "accepted: $*"; fi
    grep -q -- "$text" run.err || fail "$*: $(cat run.err)"
}
refused 'the checkpoint was made with --stages 2; this command asks for 3' --stages 3 --resume a
refused 'the checkpoint was made with --stages none' --stages 2 --resume "$(train --steps 2 --save u && echo u)"
refused '--stage-config needs --stages' --stage-config dense
refused '--stage-feedback needs --stages' --stage-feedback sample
refused 'the stages are the workers' --stages 2 --workers 2
refused 'unknown option' --stages 2 --stage-config what=1
refused 'min_size has no effect' --stages 2 --stage-config density=1,value=int8,min_size=100
refused 'a stage needs the activations' --stages 2 --alone
refused "expected dense or a config string" --stages 2 --stage-config dense/
refused "at most two configs" --stages 2 --stage-config dense/dense/dense
refused 'has no effect on activations that are not compressed' --stages 2 --stage-config dense --stage-feedback sample
refused 'a batch of 8 has some of the 3 samples twice' --stages 2 --stage-config density=1 --stage-feedback sample --samples 3
refused 'from 2 to 64' --stages 1
refused 'can be divided into at most' --stages 60

echo "cli_stages: stages give the bits of one worker, and resume"
