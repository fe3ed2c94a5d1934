#!/bin/bash
# ddp_net.sh - lab/bench/ddp_net.py with every process in a network namespace of its own, behind a link of a given rate.
#
#   lab/bench/ddp_net.sh [--world N] [--rate 1gbit|none] [--python PYTHON] [OPTION of ddp_net.py]...
#
# Needs root: see tests/net/netns.sh, which creates the links and always removes them. FRUGRAD_LIBRARY says
# which library is used.
set -euo pipefail
cd "$(dirname "$0")/../.."

world=4 rate=1gbit python=${FRUGRAD_PYTHON:-python3} options=()
while [ $# -gt 0 ]; do
    case $1 in
        -h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0"; exec "$python" lab/bench/ddp_net.py --help ;;
        --world | --rate | --python) [ $# -gt 1 ] || { echo "ddp_net: $1 what?" >&2; exit 2; } ;;&
        --world) world=$2; shift 2 ;;
        --rate) rate=$2; shift 2 ;;
        --python) python=$2; shift 2 ;;
        *) options+=("$1"); shift ;;
    esac
done
limit=$rate
[ "$rate" = none ] && limit=0
export OMP_NUM_THREADS=1
exec tests/net/netns.sh -t -q -p "$world" -r "$limit" -- "$python" lab/bench/ddp_net.py --world "$world" --rate "$rate" \
    ${options[@]+"${options[@]}"}
