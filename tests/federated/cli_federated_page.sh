#!/usr/bin/env bash
# docs/federated.md: its five commands make a run with two clients. The page of the run, its metrics, and what the port
# of the status does with requests that are not for it.
. "$(dirname "$0")/../support/script.sh"
: "${FRUGRAD_SOURCE:=$(cd "$(dirname "$0")/../.." && pwd)}"
export OPENBLAS_NUM_THREADS=1

python3 - "$FRUGRAD" "$FRUGRAD_SOURCE" "$work" <<'PY'
import json, re, shlex, socket, subprocess, sys, time

program, source, work = sys.argv[1:]
page = open(f"{source}/docs/federated.md", encoding="utf-8").read()
commands = re.search(r"<!-- five commands.*?```sh\n(.*?)```", page, re.S)[1].strip().split("\n")
assert len(commands) == 5 and all(c.startswith("frugrad ") for c in commands), commands


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


port, status_port = free_port(), free_port()
started = []
for command in commands:
    command = command.replace("fashion-mnist", "builtin --samples 256").replace("7700", str(port))
    command = command.replace("frugrad ", shlex.quote(program) + " ", 1)
    if " serve " in command:
        command = command.replace("--rounds 5", f"--rounds 4 --local-steps 2 --listen {port} --status-port {status_port}")
    started.append(subprocess.Popen("exec " + command, shell=True, cwd=work, stderr=open(f"{work}/log", "a")))
    if "keygen" in command:
        assert started[-1].wait() == 0
    elif " serve " in command:
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", status_port)).close()
                break
            except OSError:
                time.sleep(0.05)

assert [p.wait(timeout=240) for p in started] == [0] * 5, open(f"{work}/log").read()
status = json.load(open(f"{work}/run/status.json"))
assert status["done"] and status["round"] == 4 and [c["counted"] for c in status["clients"]] == [4, 4], status
PY
[ -s "$work/run/weights.safetensors" ] || fail "no weights"

# -- the page of a run in a browser: charts and numbers, names without effect, nothing fetched
timeout 250 "$FRUGRAD" serve --model lenet --data builtin --samples 256 --local-clients 2 --rounds 100000 --local-steps 1 \
    --eval-every 0 --status-port 0 2>"$work/log" &
server=$!
trap 'kill "$server" 2>/dev/null || true; rm -rf "$work"' EXIT
for _ in $(seq 1200); do grep -q 'round 3/' "$work/log" && break; sleep 0.1; done
address=$(sed -n 's/^status at \(http[^,]*\),.*/\1/p' "$work/log")
python3 - "$address" <<'PY'
import json, re, socket, sys, time, urllib.request
time.sleep(1.2)  # the status is at most a second old
get = lambda path: urllib.request.urlopen(sys.argv[1] + path, timeout=10).read().decode()
page, metrics, status = get(""), get("metrics"), json.loads(get("status.json"))
assert "client-1" in page and "<script" not in page and "http" not in re.sub("http-equiv", "", page), page
values = dict(re.findall(r"^(\w+(?:\{.*\})?) (\S+)$", metrics, re.M))
assert float(values["frugrad_round"]) >= 2 and float(values["frugrad_loss"]) > 0, metrics
assert sum(name.startswith("frugrad_client_updates_total{") for name in values) == 2, metrics
for line in metrics.splitlines():
    assert re.fullmatch(r"# (HELP|TYPE) \w+ .+|\w+(\{\w+=\"[^\"]*\"(,\w+=\"[^\"]*\")*\})? [-+0-9.e]+", line), line
assert status["rounds"] == 100000
address = ("127.0.0.1", int(re.search(r":(\d+)/", sys.argv[1])[1]))


# Hostile requests: refused or dropped, and the run goes on.
def ask(request, wait=10):
    with socket.create_connection(address) as s:
        s.settimeout(wait)
        answer = b""
        try:
            s.sendall(request)
            while more := s.recv(65536):
                answer += more
        except ConnectionError:
            pass
        return answer


host = b"Host: localhost\r\n\r\n"
for request, code in [(b"POST / HTTP/1.1\r\n" + host, b"405"), (b"GET /../../etc/passwd HTTP/1.1\r\n" + host, b"404"),
                      (b"GET / HTTP/1.1\r\nHost: example.com\r\n\r\n", b"403"), (b"GET / HTTP/1.1\r\n\r\n", b"403"),
                      (b"GET /\r\n\r\n", b"400"), (b"\0" * 40, b"400"), (b"\x16\x03\x01\r\n\r\n", b"400"),
                      (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 4000, b"431"), (b"GET  HTTP/1.1\r\n" + host, b"404")]:
    answer = ask(request)
    assert answer.startswith(b"HTTP/1.1 " + code) or (code == b"431" and not answer), (request[:40], answer[:80])
idle = [socket.create_connection(address) for _ in range(100)]
for s in idle:
    s.close()
began = time.monotonic()
assert ask(b"GET / HTTP/1.1\r\n", 12) == b"" and time.monotonic() - began < 9  # a request that never ends
assert "client-1" in get("")
PY
if command -v chromium >/dev/null; then
    timeout 100 chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run \
        --disable-background-networking --user-data-dir="$work/profile" --window-size=390,1200 --dump-dom "$address" \
        >"$work/dom" 2>"$work/chromium" || { echo "cli_federated_page: chromium does not start here"; : >"$work/dom"; }
    if [ -s "$work/dom" ]; then
        grep -q '<path class="loss" d="M[0-9]' "$work/dom" || fail "the page has no chart: $(cat "$work/dom")"
        grep -q '<th>client-2</th>' "$work/dom" || fail "the page has no clients"
    fi
else
    echo "cli_federated_page: without the browser: there is no chromium"
fi
kill -TERM "$server"
wait "$server" || true
echo "cli_federated_page: all right"
