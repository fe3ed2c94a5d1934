#!/usr/bin/env bash
# Long work shows progress on stderr: one line that is redrawn and cleared on a terminal, plain lines in a log, nothing
# if disabled; stdout has nothing but results. FRUGRAD_PROGRESS=0 shows progress of all work.
set -euo pipefail
# A leak check costs seconds per process on ARM; other tests make it for these commands.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
"$FRUGRAD" train --model mlp --samples 500 --steps 2 --save run --quiet >/dev/null
head -c 400000 "$FRUGRAD" >grad.f32
python3 - <<'PY'
import json, os, pty, select, subprocess

program = os.environ["FRUGRAD"]
weights = "run/step-000000002.safetensors"
evaluate = ["eval", "--model", "mlp", "--samples", "500", "--data", "builtin", "--weights", weights]
others = {
    "compressing grad.f32": ["compress", "grad.f32", "--json", "-o", "grad.fgr"],
    "measuring the speed of compressing": ["plan", "-d", "1%", "--json"],
    "counting bytes for up to 64 workers": ["plan", "--simulate", "-p", "64", "--json"],
}

def pipe(words, progress):
    done = subprocess.run([program] + words, capture_output=True, text=True, env=dict(os.environ, FRUGRAD_PROGRESS=progress))
    assert done.returncode == 0, (words, done)
    return done

def terminal(words, progress):
    """Run with stderr on a terminal of 60 columns and stdout in a pipe."""
    ours, theirs = pty.openpty()
    import fcntl, struct, termios
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    env = dict(os.environ, FRUGRAD_PROGRESS=progress, TERM="xterm")
    child = subprocess.Popen([program] + words, stdout=subprocess.PIPE, stderr=theirs, env=env)
    os.close(theirs)
    seen, out = b"", b""
    while True:
        ready, _, _ = select.select([ours, child.stdout], [], [], 120)
        assert ready, (words, "nothing for two minutes", seen)
        if ours in ready:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # closed by the child
                piece = b""
            if not piece:
                break
            seen += piece
        if child.stdout in ready:
            out += os.read(child.stdout.fileno(), 65536)
    out += child.stdout.read()
    assert child.wait() == 0, (words, seen)
    os.close(ours)
    return seen.decode(), out.decode()

def screen(text):
    """What is left on the screen."""
    lines = [""]
    for part in text.replace("\r\n", "\n").split("\n"):
        lines[-1] = part.split("\033[K")[-1].split("\r")[-1]
        lines.append("")
    return [line for line in lines if line]

result = pipe(evaluate + ["--json"], "off")
assert result.stderr == "", result.stderr
want = json.loads(result.stdout)

log = pipe(evaluate + ["--json"], "0")
lines = log.stderr.splitlines()
assert any(line.startswith("evaluating on the test split: ") for line in lines) and len(lines) < 20, lines
assert "\r" not in log.stderr and "\033" not in log.stderr, log.stderr
assert json.loads(log.stdout)["accuracy"] == want["accuracy"], log.stdout

seen, out = terminal(evaluate + ["--json"], "0")
assert "evaluating on the test split: " in seen and " % in 0:0" in seen, seen
assert screen(seen) == [], ("left on the screen", seen)
assert all(len(line) < 60 for line in seen.replace("\033[K", "\r").split("\r")), seen
assert json.loads(out)["accuracy"] == want["accuracy"], out

for what, words in others.items():
    assert any(line.startswith(what) for line in pipe(words, "0").stderr.splitlines()), what
    seen, out = terminal(words, "0")
    assert what in seen and screen(seen) == [], (what, seen)
    json.loads(out)
    assert pipe(words, "off").stderr == "", what

# A run of the trainer: its own bar, the evaluations inside, and then the screen has plain lines only.
train = ["train", "--model", "mlp", "--samples", "500", "--steps", "20", "--json"]
seen, out = terminal(train, "0")
assert "[#" in seen and "evaluating on the" in seen, seen
assert all(not line.startswith(("[", "evaluating", "first")) for line in screen(seen)), screen(seen)
assert json.loads(out)["step"] == 20, out
done = pipe(train[:-1], "2")  # a single worker exchanges nothing, and nothing says that it sends
assert "a single worker exchanges nothing" in done.stdout and "exchange none (one worker)" in done.stderr, done
assert "times" not in done.stdout and " sent " not in done.stderr, done
done = pipe(train[:-1] + ["--workers", "2", "--method", "dense"], "2")
assert " MB by each worker\n" in done.stdout and " sent " in done.stderr and "times less" not in done.stdout, done
done = pipe(train[:-1] + ["--workers", "2"], "2")
assert " times less" in done.stdout, done
done = pipe(train + ["--quiet"], "0")
assert done.stderr == "", done.stderr
PY
echo "cli_progress: all right"
