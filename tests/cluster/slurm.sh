#!/usr/bin/env bash
# slurm.sh - FruGrad under a real Slurm of one node, which this script starts and stops (docs/clusters.md).
#
#   tests/cluster/slurm.sh                    as root; FRUGRAD: the program, FRUGRAD_PYTHON: a Python with PyTorch
#
# Everything is in a folder under /tmp: key, config, state, logs. Daemons listen on the loopback interface only, at ports
# that were free. All processes that it started are ended by their ids. Exit status 77: Slurm, munge or root is missing.
set -euo pipefail
: "${FRUGRAD_SOURCE:=$(cd "$(dirname "$0")/../.." && pwd)}"
: "${FRUGRAD:=$FRUGRAD_SOURCE/build/release/frugrad}"
: "${FRUGRAD_PYTHON:=/usr/bin/python3}"
export FRUGRAD_LIBRARY=${FRUGRAD_LIBRARY:-$(dirname "$FRUGRAD")/libfrugrad.so} PYTHONPATH=$FRUGRAD_SOURCE/python
export PATH=$PATH:/usr/sbin FRUGRAD_PROGRESS=off OMP_NUM_THREADS=1

skip() {
    echo "slurm: skipped: $*" >&2
    exit 77
}

fail() {
    echo "slurm: $*" >&2
    tail -n 5 "$dir"/*.log >&2 || true
    exit 1
}

[ "$(id -u)" = 0 ] || skip "needs root"
for tool in munged slurmctld slurmd srun sbatch; do
    command -v "$tool" >/dev/null || skip "no $tool (Debian: slurm-wlm, munge)"
done
[ -x "$(dirname "$FRUGRAD")/frugrad-mpi" ] || skip "no frugrad-mpi beside $FRUGRAD"

dir=$(mktemp -d /tmp/frugrad-slurm.XXXX) ids=()
stop() {
    local id
    for id in $(printf '%s\n' ${ids[@]+"${ids[@]}"} | tac); do kill -TERM "$id" 2>/dev/null || true; done
    for id in ${ids[@]+"${ids[@]}"}; do wait "$id" 2>/dev/null || true; done
    rm -rf "$dir"
}
trap stop EXIT
trap 'exit 1' INT TERM HUP

# Wait up to 20 seconds for a condition.
until_true() {
    for _ in $(seq 100); do
        "$@" >/dev/null 2>&1 && return 0
        sleep 0.2
    done
    return 1
}

free_port() {
    "$FRUGRAD_PYTHON" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

start_slurm() {
    local host cpus
    host=$(hostname -s) cpus=$(nproc)
    head -c 1024 /dev/urandom >"$dir/munge.key"
    chmod 700 "$dir" && chmod 400 "$dir/munge.key"
    mkdir "$dir/ctld" "$dir/d"
    cat >"$dir/slurm.conf" <<CONF
ClusterName=frugrad
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
AuthInfo=socket=$dir/munge.socket
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmctldPort=$(free_port)
SlurmdPort=$(free_port)
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.pid
StateSaveLocation=$dir/ctld
SlurmdSpoolDir=$dir/d
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
ReturnToService=1
NodeName=$host NodeAddr=127.0.0.1 CPUs=$cpus State=UNKNOWN
PartitionName=all Nodes=$host Default=YES MaxTime=10 State=UP
CONF
    export SLURM_CONF=$dir/slurm.conf
    munged --foreground --force --key-file="$dir/munge.key" --socket="$dir/munge.socket" --pid-file="$dir/munged.pid" \
        --log-file="$dir/munged.log" --seed-file="$dir/munge.seed" >"$dir/munged.out" 2>&1 &
    ids+=($!)
    until_true test -S "$dir/munge.socket" || fail "munged did not start"
    slurmctld -D >"$dir/slurmctld.log" 2>&1 &
    ids+=($!)
    slurmd -D >"$dir/slurmd.log" 2>&1 &
    ids+=($!)
    until_true sh -c "sinfo -h -o %T | grep -qx idle" || fail "no idle node: $(sinfo 2>&1)"
}

# MPI by PMIx: two processes are one job with two workers, and the first prints.
run_mpi() {
    srun -n 2 --overcommit --mpi=pmix --time=2 "$FRUGRAD" train --model mlp --samples 2000 --steps 20 >"$dir/mpi.txt" 2>&1 ||
        fail "srun --mpi=pmix: $(cat "$dir/mpi.txt")"
    [ "$(grep -c '^training mlp .*: 20 steps of 2 x 32' "$dir/mpi.txt")" = 1 ] ||
        fail "srun --mpi=pmix: not one job of 2 workers: $(cat "$dir/mpi.txt")"
    echo "srun --mpi=pmix frugrad train: one job of 2 workers"
}

# torchrun in a batch script: one launcher per node, as in docs/clusters.md.
run_torch() {
    "$FRUGRAD_PYTHON" -c 'import torch' 2>/dev/null || { echo "slurm: no PyTorch in $FRUGRAD_PYTHON; torchrun is not tried"; return; }
    cat >"$dir/job.sh" <<JOB
#!/bin/bash
#SBATCH --nodes=1 --ntasks-per-node=1 --time=5 --output=$dir/torch.txt
head=\$(scontrol show hostnames "\$SLURM_JOB_NODELIST" | head -n 1)
srun --overcommit $FRUGRAD_PYTHON -m torch.distributed.run --nnodes "\$SLURM_NNODES" --nproc_per_node 2 --tee 1 --redirects 1 \\
    --rdzv_id "\$SLURM_JOB_ID" --rdzv_backend c10d --rdzv_endpoint "\$head:$(free_port)" \\
    $FRUGRAD_SOURCE/examples/torch_lm.py --steps 50 --width 32 --layers 1
JOB
    sbatch --wait "$dir/job.sh" >"$dir/sbatch.txt" 2>&1 || fail "sbatch: $(cat "$dir/sbatch.txt" "$dir/torch.txt")"
    grep -q 'step 50, loss' "$dir/torch.txt" || fail "torchrun under sbatch: $(cat "$dir/torch.txt")"
    echo "torchrun under sbatch: $(grep -o 'step 50, .*' "$dir/torch.txt")"
}

start_slurm
run_mpi
run_torch
