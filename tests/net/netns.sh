#!/bin/bash
# netns.sh - run an MPI or PyTorch job over slow links, on one machine.
#
#   netns.sh [-p WORKERS] [-r RATE] [-q] [-t] [-- MPIRUN-OPTION...] PROGRAM [ARGUMENT...]
#
#   -p   network namespaces, one process in each [4]
#   -r   rate of each link in each direction, as for tc: 1gbit, 100mbit; 0: no limit [1gbit]
#   -q   do not print how many bytes each link carried
#   -t   without MPI: start the program in each namespace with the variables that torchrun sets
#
# Every worker is a namespace with a link to a switch, which is a namespace too, so nothing is visible outside. The rate
# is limited at both ends of a link: sending by the worker's end, receiving by the switch's. Each worker has its own host
# name; otherwise MPI would use shared memory. MPI_Allreduce uses a ring, which is best for long vectors; the algorithm
# that Open MPI selects takes 1.5 times as long.
#
# All namespaces are deleted at exit, also after errors and signals. Only processes in these namespaces are killed.
# Exit status: the program's; 77 if the machine does not allow it (root, ip, tc and, without -t, Open MPI are needed).
set -u

workers=4 rate=1gbit quiet=0 torch=0
while getopts p:r:qt option; do
    case $option in
        p) workers=$OPTARG ;;
        r) rate=$OPTARG ;;
        q) quiet=1 ;;
        t) torch=1 ;;
        *) sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
done
shift $((OPTIND - 1))

skip() {
    echo "netns: skipped: $*" >&2
    exit 77
}

[ $# -gt 0 ] || { echo "netns: no program given" >&2; exit 2; }
[ "$workers" -ge 1 ] 2>/dev/null && [ "$workers" -le 200 ] || { echo "netns: -p $workers: expected 1 to 200 workers" >&2; exit 2; }
[ "$(id -u)" = 0 ] || skip "needs root"
tools=(ip tc unshare)
[ $torch = 1 ] || tools+=(mpirun)
for tool in "${tools[@]}"; do
    command -v "$tool" >/dev/null || skip "no $tool"
done
[ $torch = 1 ] || mpirun --version 2>/dev/null | grep "Open MPI" >/dev/null || skip "mpirun is not Open MPI's"

prefix=fg$$ net=10.91.7
dir=$(mktemp -d /tmp/$prefix.XXXX) || exit 1
namespaces=() job=

# The processes in our namespaces.
namespace_pids() {
    for name in "${namespaces[@]}"; do ip netns pids "$name" 2>/dev/null; done
}

clean_up() {
    trap '' INT TERM HUP
    if [ -n "$job" ] && kill -TERM "$job" 2>/dev/null; then
        for _ in 1 2 3 4 5 6 7 8 9 10; do kill -0 "$job" 2>/dev/null || break; sleep 0.2; done
    fi
    for signal in TERM KILL; do
        left=$(namespace_pids)
        [ -n "$left" ] || break
        kill -$signal $left 2>/dev/null
        sleep 0.3
    done
    for name in "${namespaces[@]}"; do ip netns del "$name" 2>/dev/null; done
    rm -rf "$dir"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

add_namespace() {
    ip netns add "$1" 2>"$dir/why" || skip "no namespace: $(cat "$dir/why")"
    namespaces+=("$1")
    ip -n "$1" link set lo up
}

# limit NAMESPACE DEVICE: bursts of a few of the largest packets, a queue of 50 ms.
limit() {
    [ "$rate" = 0 ] && return
    ip netns exec "$1" tc qdisc add dev "$2" root tbf rate "$rate" burst 128kb latency 50ms 2>"$dir/why" ||
        skip "no rate limit: $(cat "$dir/why")"
}

add_namespace ${prefix}sw
ip -n ${prefix}sw link add bridge type bridge 2>"$dir/why" || skip "no bridge: $(cat "$dir/why")"
ip -n ${prefix}sw link set bridge up
hosts=
for ((i = 0; i < workers; i++)); do
    add_namespace $prefix$i
    ip link add eth0 netns $prefix$i type veth peer name port$i netns ${prefix}sw 2>"$dir/why" ||
        skip "no link: $(cat "$dir/why")"
    ip -n ${prefix}sw link set port$i master bridge up
    ip -n $prefix$i addr add $net.$((i + 1))/24 dev eth0
    ip -n $prefix$i link set eth0 up
    limit $prefix$i eth0
    limit ${prefix}sw port$i
    hosts+=${hosts:+,}$net.$((i + 1)):1
    mkdir "$dir/$i"
done

# Called by mpirun instead of ssh: agent ADDRESS COMMAND...
cat >"$dir/agent" <<END
#!/bin/sh
i=\$((\${1##*.} - 1))
shift
TMPDIR=$dir/\$i exec ip netns exec $prefix\$i unshare --uts sh -c "hostname $prefix\$i; \$*"
END
chmod +x "$dir/agent"

sent() {
    ip netns exec $prefix$1 cat /sys/class/net/eth0/statistics/tx_bytes
}

# run_torch PROGRAM...: returns as soon as one worker fails; clean_up ends the others.
run_torch() {
    for ((i = 0; i < workers; i++)); do
        RANK=$i LOCAL_RANK=0 WORLD_SIZE=$workers MASTER_ADDR=$net.1 MASTER_PORT=29500 GLOO_SOCKET_IFNAME=eth0 TMPDIR=$dir/$i \
            ip netns exec $prefix$i "$@" </dev/null &
    done
    status=0
    for ((i = 0; i < workers && status == 0; i++)); do
        wait -n
        status=$?
    done
}

run_mpi() {
    TMPDIR=$dir/0 ip netns exec ${prefix}0 unshare --uts sh -c "hostname ${prefix}0; exec \"\$@\"" sh \
        mpirun --allow-run-as-root --oversubscribe --bind-to none -np "$workers" -H "$hosts" \
        --mca plm_rsh_agent "$dir/agent" --mca plm_rsh_no_tree_spawn 1 --mca orte_keep_fqdn_hostnames 1 \
        --mca oob_tcp_if_include $net.0/24 --mca btl_tcp_if_include $net.0/24 --mca btl self,tcp --mca pml ob1 \
        --mca mpi_yield_when_idle 1 --mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_allreduce_algorithm 4 \
        "$@" </dev/null &
    job=$!
    wait $job
    status=$?
    job=
}

if [ $torch = 1 ]; then run_torch "$@"; else run_mpi "$@"; fi
if [ $quiet = 0 ]; then
    for ((i = 0; i < workers; i++)); do echo "netns: worker $i sent $(sent $i) bytes" >&2; done
fi
exit $status
