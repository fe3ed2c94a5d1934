#!/usr/bin/env bash
# lab/bench/local_links.py computes the time of a step over a link from a worker's step and bytes, and compares methods at
# equal times: figures here are computed by hand.
. "$(dirname "$0")/../support/script.sh"
: "${FRUGRAD_SOURCE:=$(cd "$(dirname "$0")/../.." && pwd)}"
tool=$FRUGRAD_SOURCE/lab/bench/local_links.py
cd "$work"
python3 - <<'PY'
import json


def run(name, method, local, steps, perplexity, sent, workers=4, **times):
    fields = dict.fromkeys("model data optimizer rate clip schedule batch seed params split train_loss bytes_dense device"
                           " torch version".split(), 1)
    fields.update(method=method, config=f"a=1,local={local},b=2", steps=steps, perplexity=perplexity, workers=workers,
                  bytes_sent=sent, step_ms=10.0, time_ms={"compress": 0.0, "decode": 0.0, **times})
    json.dump(fields, open(name, "w"))


# 1 MB a step and 10 ms: 90 ms a step over 100 Mbit/s, so 9 s and 36 s. Local: 0.1 MB and 10 + 2 ms, 20 ms a step.
for steps, every, local in ((100, 40.0, 50.0), (400, 20.0, 25.0)):
    run(f"e{steps}.json", "every", 0, steps, every, steps * 10**6)
    run(f"l{steps}.json", "local", 10, steps, local, steps * 10**5)
run("t1.json", "every", 0, 9, 1.0, 0, workers=1, compress=3.0)
run("t2.json", "local", 10, 15, 1.0, 0, workers=1, compress=1.5, decode=1.16667)  # two exchanges of 20 ms
PY
python3 -B "$tool" [el]*.json --times t*.json --reference every --save records.jsonl >first || fail "it fails"
python3 -B "$tool" records.jsonl --reference every >again || fail "records cannot be read"
cmp -s first again || fail "records give other tables"
for line in '`every` | 1 | 40.00 | 20.00 | 90 ms, 18 ms, 11 ms' '`local` | 0.1 | 50.00 | 25.00 | 20 ms, 13 ms, 12 ms' \
    '100 Mbit/s: perplexity after | 9.0 s | 36 s' '`every` | 40.00 | **20.00** |' '`local` | **25.00**† | 25.00† |' \
    '10 Gbit/s: `local` is ahead of every exchange at each step after: none of these' \
    '100 Mbit/s: `local` is ahead of every exchange at each step after: 9.0 s.'; do
    grep -qF -- "$line" first || fail "no line '$line' in: $(cat first)"
done
if python3 -B "$tool" e*.json >/dev/null 2>err; then fail "runs without times are accepted"; fi
grep -q 'give their --times' err || fail "$(cat err)"

echo "local_links: times over links and perplexities at equal times are those computed by hand"
