#!/usr/bin/env bash
# Every command has help, unknown words get the nearest valid one as a hint, and the man page has everything.
. "$(dirname "$0")/../support/script.sh"

"$FRUGRAD" --help >"$work/help"
grep -q '^Usage: frugrad COMMAND' "$work/help" || fail "--help shows no usage"
"$FRUGRAD" help | cmp -s - "$work/help" || fail "'help' and '--help' differ"
"$FRUGRAD" --version | grep -E '^frugrad [0-9]+\.[0-9]+\.[0-9]+$' >/dev/null || fail "--version prints no version"
"$FRUGRAD" man >"$work/frugrad.1"
grep -q '^\.TH FRUGRAD 1' "$work/frugrad.1" || fail "'man' prints no man page"

commands=$(sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' "$work/help")
for wanted in bench demo inspect compress decompress help; do
    grep -qx "$wanted" <<<"$commands" || fail "--help does not list $wanted"
done
for command in $commands; do
    "$FRUGRAD" "$command" --help >"$work/$command" || fail "$command --help fails"
    grep -q "^Usage: frugrad $command" "$work/$command" || fail "$command --help shows no usage"
    "$FRUGRAD" help "$command" | cmp -s - "$work/$command" || fail "'help $command' and '$command --help' differ"
    grep -q "^\.SS frugrad $command" "$work/frugrad.1" || fail "the man page does not have $command"
    for option in $(grep -Eo '^ +(-[a-z], )?--[a-z-]+' "$work/$command" | grep -Eo -- '--.*' | grep -vx -- --help); do
        grep -qF -- "\\fB${option//-/\\-}\\fR" "$work/frugrad.1" || fail "the man page does not have $command $option"
    done
done
# The man page, which has no line width, has each option and its help in two lines: the help must have all their words.
for command in $commands; do
    words=$(tr -s ' \n' ' ' <"$work/$command")
    while read -r option && read -r help; do
        [[ $words == *" $option $help "* ]] || fail "$command --help cuts off the help of $option"
    done < <(sed -n "/^\.SS frugrad $command /,/^\.S[SH]/p" "$work/frugrad.1" |
        sed -n '/^\.TP/{n;N;s/\\f[BIR]//g;s/\\[:&]//g;s/\\-/-/g;s/\\e/\\/g;s/  */ /g;p}')
done
for name in $("$FRUGRAD" inspect --config "" --json | python3 -c '
import json, sys
print(*(option["option"] for option in json.load(sys.stdin)["options"]))'); do
    grep -q "^\\\\fB$name\\\\fR=" "$work/frugrad.1" || fail "the man page does not have the config option $name"
done
if command -v groff >/dev/null; then
    LC_ALL=C groff -man -Tascii -ww "$work/frugrad.1" 2>"$work/warnings" >/dev/null
    [ ! -s "$work/warnings" ] || fail "groff warns about the man page: $(head -1 "$work/warnings")"
fi

# wrong ARGUMENTS... -- first line of stderr must match, exit status 2, nothing on stdout
wrong() {
    local pattern=$1 code=0
    shift
    "$FRUGRAD" "$@" >"$work/out" 2>"$work/err" || code=$?
    [ "$code" = 2 ] || fail "'$*' exits with $code, not 2"
    [ ! -s "$work/out" ] || fail "'$*' prints on stdout"
    grep -q '^frugrad: ' "$work/err" || fail "'$*' gives no error line"
    grep -Eq "$pattern" "$work/err" || fail "'$*' does not print '$pattern' but: $(cat "$work/err")"
}
"$FRUGRAD" inspect --model gpt2-nano:layers=1 | grep '^gpt2-nano:layers=1: [0-9]* parameters' >/dev/null ||
    fail "inspect does not know the trainer's models"
"$FRUGRAD" version | cmp -s - <("$FRUGRAD" --version) || fail "'version' is not '--version'"
code=0
"$FRUGRAD" >"$work/out" 2>"$work/err" || code=$?
[ "$code" = 2 ] && [ ! -s "$work/out" ] || fail "without a command: exit status $code, stdout: $(cat "$work/out")"
"$FRUGRAD" --help | cmp -s - "$work/err" || fail "without a command stderr is not --help: $(cat "$work/err")"
wrong 'did you mean frugrad compress' compres x
wrong 'did you mean frugrad inspect' insepct
wrong "unknown command 'zzzzzzzz'" zzzzzzzz
wrong "unknown command ''" ''
wrong 'did you mean --config' compress x --confg=frugrad
wrong "unknown option '-z'" compress x -z
wrong '^frugrad: compress: --output needs a value' compress x -o
wrong '^frugrad: train: --sparse needs a value \(TEXT\)' train --model lenet --sparse --steps 5
wrong 'hint: .* is written --sparse=--steps' train --model lenet --sparse --steps 5
wrong "unknown kind '--steps'" train --model lenet --sparse=--steps
wrong "rate: '-1' is not" train --model lenet --rate -1
wrong '^frugrad: compress: --json takes no value' compress x --json=1
# -- an invalid value exits with 2, with a hint: all accepted values, or where to find them
hinted() { wrong "$@" && { grep -q '^  hint: ' "$work/err" || fail "'${*:2}' gives no hint: $(cat "$work/err")"; }; }
hinted 'accepted: paper, ablation, sparsity, structured, scaling, momentum, bytes, evidence, sgc$' compare --suite foo --out x
hinted 'did you mean paper\? accepted: paper, ' compare --suite papre --out x
hinted 'accepted: smoke, small, full, paper$' compare --size foo --out x
hinted 'accepted: .*gpt2-rules' compare --tasks foo --out x
hinted 'accepted: dense, topk, .*no-feedback$' compare --methods foo --out x
hinted 'task .* needs data in --data DIR' compare --size small --tasks gpt2-wikitext2 --out x
for command in train eval sample; do
    hinted "unknown model 'foo'" $command --model foo --weights x
    hinted 'accepted: mlp, lenet, resnet20, .*bert-mlm-base$' $command --model foo --weights x
done
hinted "unknown preset 'foo'" demo --method foo
hinted "unknown model 'foo'" demo --model foo
wrong '^frugrad: demo: --model: gpt2-nano is not a model for images' demo --model gpt2-nano
hinted "unknown preset 'foo'" train --model mlp --method foo
hinted "unknown preset 'foo'" bench --config foo
hinted "unknown preset 'foo'" plan --config foo
hinted "unknown preset 'foo'" inspect --config foo
hinted "unknown optimizer 'foo'" train --model mlp --optimizer foo --steps 1
hinted "unknown schedule 'foo'; accepted: constant" train --model mlp --schedule foo
hinted 'layers=x: expected a whole number' train --model gpt2:layers=x
hinted 'no tensor of two dimensions' finetune --model bert-mini:layers=1,width=16,heads=2 --weights x --targets foo
hinted "unknown task 'foo'" train --model bert-mini --data . --tokens x --subset foo
hinted 'is for text, and mlp is a model for images' train --model mlp --tokens bytes
hinted 'builtin data has its own tokens' train --model gpt2-nano --tokens words
hinted 'is for sentence tasks' train --model mlp --subset cola
hinted 'accepted: train, valid, test' eval --model mlp --weights x --data builtin --split foo
hinted 'accepted: raw, npy, safetensors, auto' compress x --format foo
hinted 'unknown operand' bench foo
hinted 'did you mean --rate' train --model mlp --lr 0.1
hinted 'as in --model mlp' train mlp
hinted 'train --model gpt2-nano .*--save DIR' sample --model gpt2-nano
hinted 'accepted: resnet20, .*llama-1b, mlp, lenet' inspect --model foo
hinted 'one worker exchanges nothing' plan --workers 1
wrong '^frugrad: compress: IN missing' compress
wrong "unexpected argument 'b'" compress a b
wrong 'did you mean safetensors' compress x --format safetensor
wrong "'-1' is not a whole number" compress x --step -1
wrong "'99999999999999999999' is not a whole number" compress x --step 99999999999999999999
wrong "did you mean 'frugrad'" compress x --config fugrad
wrong "did you mean 'value'" inspect --config valeu=f32
wrong 'give one of them' inspect file --config frugrad
wrong 'does not end in .fgr' decompress grad.npy
echo "cli_help: all right"
