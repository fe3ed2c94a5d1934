#!/usr/bin/env bash
# `frugrad keygen`, `serve` and `join`: a run with two clients learns; local clients need no set-up; who does not belong
# gets one line that says what to do.
. "$(dirname "$0")/../support/script.sh"
cd "$work"

rounds=4
job="--model mlp --data builtin --samples 400 --rounds $rounds --local-steps 8 --eval-every $rounds --deadline 1000"
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
at="127.0.0.1:$port"

# -- keys: private ones are for their owner only, and never replaced
"$FRUGRAD" keygen server >server.line
"$FRUGRAD" keygen a --name alice >a.line
"$FRUGRAD" keygen b >b.line
"$FRUGRAD" keygen stranger >/dev/null
cmp -s a.line a.pub || fail "keygen prints $(cat a.line), and a.pub has $(cat a.pub)"
grep -q '^ed25519:[A-Za-z0-9+/]*= alice$' a.pub || fail "a.pub: $(cat a.pub)"
[ "$(stat -c %a a)" = 600 ] || fail "the key can be read by others: $(stat -c %a a)"
if "$FRUGRAD" keygen a >/dev/null 2>err; then fail "keygen replaces a key"; fi
grep -q 'never replaced' err || fail "$(cat err)"
expect_error 1 'keygen: nowhere/a cannot be created: No such file or directory' keygen nowhere/a
said=$( (ulimit -f 0 && "$FRUGRAD" keygen full) 2>&1) && fail "keygen writes a file that may have no bytes"
[[ $said == *'keygen: full cannot be written: File too large' && ! -e full ]] || fail "keygen: $said"
expect_error 1 'serve: --key: a/b cannot be opened: Not a directory' serve --model mlp --data builtin --save x \
    --clients a.pub --key a/b
cat a.pub b.pub >clients.txt

serve() { # DIR
    exec "$FRUGRAD" serve $job --clients clients.txt --listen "$at" --save "$1" --key server
}
join() { # KEY SHARE STATE
    exec "$FRUGRAD" join "$at" --key "$1" --server server.pub --data builtin --samples 400 --share "$2" --state "$3" \
        --patience 60
}
wait_for() { # FILE PATTERN
    for _ in $(seq 600); do
        if grep -q "$2" "$1" 2>/dev/null; then return; fi
        sleep 0.05
    done
    fail "no '$2' in $1: $(cat "$1")"
}

# -- a run without faults
(serve straight) >straight.out 2>straight.err &
server=$!
wait_for straight.err 'listening at port'
(join a 1/2 a.straight) >a.out 2>a.err &
first=$!
(join b 2/2 b.straight) >b.out 2>b.err || fail "join: $(cat b.err)"
wait $first || fail "join: $(cat a.err)"
wait $server || fail "serve: $(cat straight.err)"
grep -q "^$rounds rounds, loss .* accuracy " straight.out || fail "serve: $(cat straight.out)"
grep -q "^$rounds rounds, $rounds updates counted, 0 refused" a.out || fail "join: $(cat a.out)"
[ "$(wc -l <straight/rounds.jsonl)" = $rounds ] || fail "rounds.jsonl: $(cat straight/rounds.jsonl)"
"$FRUGRAD" serve --status --save straight >status || fail "no status"
grep -q "^alice .* $rounds  *0  *0 " status || fail "status: $(cat status)"
"$FRUGRAD" serve --status --save straight --json | python3 -c '
import json, sys
status = json.load(sys.stdin)
assert status["done"] and status["round"] == 4 and len(status["clients"]) == 2, status
assert [r["updates"] for r in status["history"]] == [2] * 4, status["history"]' || fail "status as JSON"
"$FRUGRAD" eval --model mlp --data builtin --samples 400 --weights straight/weights.safetensors --json >/dev/null ||
    fail "the weights cannot be evaluated"
cp straight/status.json before.json
for json in "" --json; do # half of the file
    head -c 100 before.json >straight/status.json
    expect_error 1 'straight/status.json is damaged; .* when it is started' serve --status --save straight $json
done
(serve straight) >again.out 2>again.err || fail "serve after the end: $(cat again.err)"
grep -q "^$rounds rounds: the run had ended before" again.out || fail "serve after the end: $(cat again.out)"
echo '{"round":' >>straight/rounds.jsonl # a line that is not complete
(serve straight) >again.out 2>again.err || fail "serve after the end: $(cat again.err)"
grep -q 'rounds.jsonl: 1 line is damaged' again.err || fail "a damaged line: $(cat again.err)"
python3 -c '
import json
before, after = json.load(open("before.json")), json.load(open("straight/status.json"))
assert len(after["history"]) == 4 and after["history"] == before["history"], (before["history"], after["history"])
assert after["history"][-1]["eval_accuracy"] > 0 and after["history"][0]["eval_accuracy"] is None, after["history"]' ||
    fail "the history of rounds after a restart"

# -- local clients: one command
"$FRUGRAD" serve --model mlp --data builtin --samples 400 --local-clients 3 --rounds 2 --local-steps 4 --quiet \
    --server-optimizer momentum --robust trim --down density=0.1,feedback=plain,min_size=1 --json >local.json 2>err ||
    fail "local clients: $(cat err)"
python3 -c 'import json; r = json.load(open("local.json")); assert r["rounds"] == 2 and r["loss"] > 0, r' ||
    fail "local clients: $(cat local.json)"
[ ! -s err ] || fail "--quiet prints $(cat err)"
if timeout 60 "$FRUGRAD" serve --model mlp --data builtin --samples 100 --local-clients 2 --local-steps 20 --rate 1e5 \
    --quiet >out 2>err; then fail "clients that failed are a success"; fi
grep -q 'the loss is not finite' err || fail "local clients that fail: $(cat err)"
for model in lenet=all resnet20=tensor; do # running statistics are vectors, which segment=tensor leaves dense
    "$FRUGRAD" serve --model ${model%=*} --data builtin --samples 8 --local-clients 1 --rounds 1 --local-steps 1 --batch 2 \
        --eval-every 0 --save "$model" --quiet >out || fail "$model: $(cat out)"
    grep -q "\"config\":\"segment=${model#*=}," "$model/status.json" || fail "$model has another config by default"
done

# -- one line for those who do not belong, on both sides
(serve gate) >gate.out 2>gate.err &
server=$!
wait_for gate.err 'listening at port'
refused() { # TEXT JOIN-OPTIONS...
    local text=$1
    shift
    if "$FRUGRAD" join "$at" --patience 5 "$@" >/dev/null 2>err; then fail "let in: $*"; fi
    grep -q -- "$text" err || fail "$*: $(cat err)"
}
refused 'ask its operator to add the line of your .pub file' --key stranger --server server.pub --data builtin
wait_for gate.err 'refused: its key is not in the list of clients'
refused 'the server has another key than --server says' --key a --server b.pub --data builtin
mkdir empty
refused 'expected a directory' --key a --server server.pub --data empty
refused 'neither a public key' --key a --server nobody --data builtin
refused "'frugrad keygen nothing' makes a key" --key nothing --server server.pub --data builtin
refused 'expected I/N' --key a --server server.pub --data builtin --share 3/2
chmod 644 b
refused 'chmod 600 b' --key b --server server.pub --data builtin
chmod 600 b
if "$FRUGRAD" serve $job --clients clients.txt --listen 127.0.0.1:0 --save gate --key server 2>err; then
    fail "two servers on one directory"
fi
grep -q 'serve: gate is in use by another server' err || fail "a second server: $(cat err)"
kill $server
if wait $server; then fail "an interrupted server reports success"; fi
grep -q 'the same command continues the run in gate' gate.err || fail "$(cat gate.err)"

# -- classes are those of the server's data: clients may have fewer, and none that it does not have
python3 - <<'PY'
import os, random, struct

random.seed(3)
for name, train, test in (("all", (0, 1, 2), (0, 1, 2)), ("few", (0, 1), (0, 1, 2)), ("more", (0, 3), (0, 3))):
    os.mkdir(name)
    for part, labels in (("train", train * 20), ("t10k", test * 2)):
        n = len(labels)
        with open(f"{name}/{part}-images-idx3-ubyte", "wb") as file:
            file.write(struct.pack(">4i", 2051, n, 28, 28) + random.randbytes(n * 784))
        with open(f"{name}/{part}-labels-idx1-ubyte", "wb") as file:
            file.write(struct.pack(">2i", 2049, n) + bytes(labels))
PY
"$FRUGRAD" serve --model mlp --data all --rounds 1 --local-steps 2 --clients clients.txt --quorum 1 --deadline 1000 \
    --listen "$at" --save classes --key server >classes.out 2>classes.err &
server=$!
wait_for classes.err 'listening at port'
refused 'expected a label below 3, as in the run, found 3' --key a --server server.pub --data more
grep -q 'the run trains mlp on all, in 3 classes' err || fail "$(cat err)"
"$FRUGRAD" serve --status --save classes >status || fail "no status"
grep -q '^round 0 of 1, 0 updates of this round, ' status || fail "status: $(cat status)"
"$FRUGRAD" join "$at" --key a --server server.pub --data few >a.out 2>err &
first=$!
"$FRUGRAD" join "$at" --key b --server server.pub --data all >b.out 2>err2 || fail "join: $(cat err2)"
wait $first || fail "join: $(cat err)"
wait $server || fail "serve: $(cat classes.err)"

# -- mistakes of the operator
bad() { # TEXT SERVE-OPTIONS...
    local text=$1
    shift
    if "$FRUGRAD" serve "$@" >/dev/null 2>err; then fail "accepted: $*"; fi
    grep -q -- "$text" err || fail "$*: $(cat err)"
}
bad '--local-clients 2' --data builtin
bad '--clients missing' --model mlp --data builtin --save x
bad 'cannot be read; it lists the public keys' --model mlp --data builtin --save x --clients nothing
echo nonsense >wrong.txt
bad 'wrong.txt: line 1: expected a public key' --model mlp --data builtin --save x --clients wrong.txt
bad 'repeat its options, or name another directory' $job --rate 0.5 --clients clients.txt --save straight --key server
grep -q 'hint: the run in straight has rate 0.1, not 0.5$' err || fail "another rate: $(cat err)"
grep -q -- 'to go on from its weights: --weights straight/weights.safetensors --save OTHER' err || fail "$(cat err)"
bad 'has a run with' $job --local-steps 9 --clients clients.txt --save gate --key server
[ "$(grep 'hint: ' err)" = '  hint: the run in gate has local-steps 8, not 9' ] || fail "other options: $(cat err)"
bad 'has a run with' $job --server-rate 0.5 --clients clients.txt --save straight --key server
if grep 'hint: ' err; then fail "a hint of no difference"; fi
bad 'expected HOST:PORT' $job --clients clients.txt --save y --listen 127.0.0.1:1x
bad 'cannot listen at 192.0.2.77:7700' $job --clients clients.txt --save y --listen 192.0.2.77:7700
bad 'local has no effect here' --model mlp --data builtin --local-clients 2 --config local=4
bad 'no run has begun' --status --save nowhere

# -- options that would have no effect
local="--model mlp --data builtin --local-clients 2"
expect_error 2 'serve: --trim needs --robust trim' serve $local --trim 0.2
expect_error 2 'serve: --trim needs --robust trim' serve $local --trim 0.2 --robust mean
expect_error 2 'serve: --stale-power does nothing with --stale 0' serve $local --stale 0 --stale-power 1
expect_error 2 'serve: --listen does nothing with --local-clients' serve $local --listen 7700
expect_error 2 'serve: --key does nothing with --local-clients' serve $local --key server
expect_error 2 'serve: --quorum 3: only 2 clients may send; ' serve $local --quorum 3
expect_error 2 'serve: --quorum 3: only 2 clients in clients.txt may send; ' serve $job --clients clients.txt --save z \
    --quorum 3
expect_error 2 'serve: --samples is for builtin data' serve --model mlp --data all --samples 10 --local-clients 2
expect_error 2 'join: --samples is for builtin data' join "$at" --key a --server server.pub --data all --samples 10
[ ! -e z ] || fail "an invalid command line leaves a directory"

echo "cli_federated: a run learns, and lets nobody in who does not belong"
