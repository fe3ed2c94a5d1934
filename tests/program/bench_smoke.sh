#!/usr/bin/env bash
# bench runs on a small gradient, every line of output is a verified JSON object with the documented
# fields, invalid command lines and unreadable recordings get one error line and a non-zero exit. Speeds are not checked.
set -euo pipefail
export FRUGRAD_PROGRESS=off # how long things take must not change what is printed

frugrad=${FRUGRAD:?the program to test}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "bench_smoke: $*" >&2
    exit 1
}

# Runs a command that must fail with exit code $1 and one line on stderr that contains $2 (a hint may follow).
expect_error() {
    local want=$1 text=$2 rc=0
    shift 2
    "$frugrad" "$@" >"$work/out" 2>"$work/err" || rc=$?
    [ "$rc" -eq "$want" ] || fail "frugrad $*: exit status $rc, not $want"
    [ "$(grep -vc '^  hint:' "$work/err")" -eq 1 ] || fail "frugrad $*: not one line of error: $(cat "$work/err")"
    grep -qF -- "$text" "$work/err" || fail "frugrad $*: no '$text' in: $(cat "$work/err")"
}

"$frugrad" bench --quick --rounds 1 --n 100000 --json >"$work/bench.jsonl" || fail "bench fails"
perl - "$work/bench.jsonl" <<'PL' || fail "the lines of bench are not as promised"
my %rows;
while (my $line = <>) {
    my ($case) = $line =~ /^\{"case":"([^"]+)",.*\}$/ or die "not an object: $line";
    my %row = $line =~ /"(\w+)":("[^"]*"|-?[0-9.]+(?:e[-+]?[0-9]+)?|true|false|null)(?=[,}])/g;
    exists $row{$_} or die "$case has no $_" for qw(n k threads gbps limit_gbps ratio);
    my $alone = $row{note} =~ /without a C\+\+ compiler/;
    $row{$_} > 0 or die "$case: $_ is $row{$_}" for qw(k threads gbps), $alone ? () : qw(limit_gbps ratio);
    $row{n} == 100000 or die "$case: n is $row{n}";
    $row{verified} eq "true" or die "$case is not verified";
    $rows{$case} //= \%row;
}
$rows{$_} or die "no case $_" for qw(compress/exact/f32 compress/hist/f32 compress/hist/int8 compress/exact/bf16
    compress/hist/f32/feedback=dgc compress/exact/f32/B=4096 compress/topk compress/threshold
    compress/randomk compress/hybrid compress/2:4 compress/rows compress/learned compress/dgc compress/qsgd
    compress/onebit compress/random compress/tensor compress/tensor/index=rice compress/hist/f32/value=int4
    topk/whole decode/4 decode/8 apply/4 frame-check checksum);
my $main = $rows{"compress/hist/f32"};
$main->{k} == 16 or die "K is $main->{k}";
$main->{energy_vs_exact} >= 0.99 or die "only $main->{energy_vs_exact} of the energy";
$main->{frame_bytes} <= 48 * 391 + 1024 or die "a frame has $main->{frame_bytes} bytes";
$rows{"compress/exact/$_"}{own_ratio} > 0 or die "$_ has no limit of its own" for qw(int8 int4 bf16);
$rows{$_}{own_ratio} eq "null" or die "$_ has a limit of its own" for qw(compress/exact/f32 decode/4);
my $whole = $rows{"topk/whole"};
abs($whole->{k} - 16) < 1e-3 or die "topk/whole sends $whole->{k} of 256";
PL

for dist in sparse ties; do
    "$frugrad" bench --quick --n 70001 --case /exact/f32 --dist $dist >"$work/table" || fail "bench --dist $dist fails"
    grep -q '^compress/exact/f32 .* yes$' "$work/table" || fail "the table has no verified row: $(cat "$work/table")"
    "$frugrad" bench --quick --n 70001 --case topk/whole --dist $dist >"$work/table" || fail "topk/whole --dist $dist fails"
    grep -q '^topk/whole .* yes  ' "$work/table" || fail "topk/whole is not verified: $(cat "$work/table")"
done

# Two recorded steps of 300 elements, then invalid files.
perl - "$work" <<'PL'
sub tensors {
    my ($name, $cut, @steps) = @_;
    my ($header, $data) = ("", "");
    for my $i (0 .. $#steps) {
        my ($count, $from) = (scalar @{$steps[$i]}, length $data);
        $data .= pack "f<*", @{$steps[$i]};
        $header .= sprintf '%s"step_%04d":{"dtype":"F32","shape":[%d],"data_offsets":[%d,%d]}', $i ? "," : "", $i,
            $count, $from, length $data;
    }
    $header = "{$header}";
    my $all = pack("Q<", length $header) . $header . $data;
    open my $file, ">:raw", "$ARGV[0]/$name" or die $!;
    print $file substr $all, 0, length($all) - $cut;
    close $file or die $!;
}
my @ramp = map { ((37 * $_) % 101 - 50) / 64 } 0 .. 299;
tensors("good", 0, [@ramp], [reverse @ramp]);
tensors("cut", 5, [@ramp], [@ramp]);
tensors("uneven", 0, [@ramp], [@ramp[1 .. 299]]);
tensors("single", 0, [@ramp]);
tensors("nan", 0, [@ramp], ["nan", @ramp[1 .. 299]]);
PL
"$frugrad" bench --quick --n 100000 --grad "$work/good" --case /exact/f32 --json >"$work/good.jsonl" || fail "bench --grad fails"
grep -q '"verified":true' "$work/good.jsonl" || fail "recorded gradients do not verify"
expect_error 1 "$work/cut" bench --grad "$work/cut"
expect_error 1 "299 elements, not 300" bench --grad "$work/uneven"
expect_error 1 "fewer than two recorded steps" bench --grad "$work/single"
expect_error 1 "NaN" bench --grad "$work/nan"
expect_error 1 "$work/missing" bench --grad "$work/missing"
expect_error 1 "give a smaller --n" bench --n 68719476736
expect_error 2 "no case" bench --case nothing-like-this
expect_error 2 "give one of them" bench --k 16 --density 0.1
expect_error 2 "dist" bench --dist gausian
expect_error 2 "'selekt'" bench --quick --n 100000 --config selekt=hist --case compress

# Whole exchanges: 600,000 elements are sent in chunks, 3 workers.
"$frugrad" bench reduce --quick --rounds 1 --n 600000 --workers 3 --json >"$work/reduce.jsonl" || fail "bench reduce fails"
perl - "$work/reduce.jsonl" <<'PL' || fail "the lines of bench reduce are not as promised"
my %rows;
while (my $line = <>) {
    my ($name) = $line =~ /^\{"reduce":"([^"]+)",.*\}$/ or die "not an object: $line";
    $rows{$name} = {$line =~ /"(\w+)":("[^"]*"|-?[0-9.]+(?:e[-+]?[0-9]+)?|true|false|null)(?=[,}])/g};
    next if exists $rows{$name}{skipped};
    $rows{$name}{verified} eq "true" or die "$name is not verified";
    $rows{$name}{ms_median} > 0 or die "$name takes no time";
}
$rows{dense}{bytes_sent} == 3200000 or die "dense sends $rows{dense}{bytes_sent}"; # 2 * 2/3 of 2.4 MB
$rows{gather}{by_hand} eq "true" or die "gather is not compared with frames added by hand";
my $frame = 600000 / 16 * 3; # two others get one byte of place and two of value for one entry in 16
abs($rows{gather}{bytes_sent} - 2 * $frame) < 2000 or die "gather sends $rows{gather}{bytes_sent}";
PL
"$frugrad" bench reduce --quick --n 70k --workers 4 --config frugrad,reduce=nodes,node=2,density=0.1 >"$work/table" || fail "bench reduce of one algorithm fails"
[ "$(grep -c " yes" "$work/table")" = 2 ] && grep -q "^nodes " "$work/table" || fail "not dense and nodes alone: $(cat "$work/table")"
"$frugrad" bench reduce --quick --n 70000 --workers 2 --case gather --config topk >"$work/table" || fail "bench reduce --config topk fails"
grep -q '^gather .* yes, by hand$' "$work/table" || fail "topk is not verified: $(cat "$work/table")"
expect_error 2 "selekt" bench reduce --n 100000 --config selekt=hist
expect_error 2 "unknown operand" bench reduse
expect_error 2 "takes no --dist" bench reduce --dist ties
expect_error 2 "workers" bench reduce --workers 0
expect_error 1 "needs about" bench reduce --n 68719476736

# Sparse recovery: every case is verified; times are not checked. The tail has every algorithm.
some=${FRUG_TEST_SHORT:+--case tail}
"$frugrad" bench recover --quick --rounds 1 $some --json >"$work/recover.jsonl" || fail "bench recover fails"
perl - "$work/recover.jsonl" "$some" <<'PL' || fail "the lines of bench recover are not as promised"
my %rows;
my $some = pop;
while (my $line = <>) {
    my ($name) = $line =~ /^\{"recover":"([^"]+)",.*\}$/ or die "not an object: $line";
    !$rows{$name} or die "$name is there twice";
    $rows{$name} = {$line =~ /"(\w+)":("[^"]*"|-?[0-9.]+(?:e[-+]?[0-9]+)?|true|false|null)(?=[,}])/g};
    $rows{$name}{verified} eq "true" or die "$name is not verified";
    $rows{$name}{ms_chunk} > 0 or die "$name takes no time";
}
$rows{$_} or die "no case $_" for qw(tail/batch tail/gomp4 tail/implicit);
exit if $some;
$rows{$_} or die "no case $_" for qw(naive batch gomp4 gomp4-wide implicit/batch implicit/residual implicit/gomp4-wide
    large/explicit large/implicit large/explicit/gomp4 large/implicit/gomp4);
$rows{"large/implicit"}{matrix_bytes} < 10000 or die "the implicit matrix takes $rows{'large/implicit'}{matrix_bytes}";
PL
expect_error 2 "takes no --dist" bench recover --dist ties
expect_error 2 "no case" bench recover --case nothing-like-this
expect_error 2 "rounds" bench recover --rounds 0

# Packed weights: every case is verified; times are not checked.
"$frugrad" bench spmv --quick --rounds 1 --json >"$work/spmv.jsonl" || fail "bench spmv fails"
[ "$(grep -c '^{"spmv":.*"verified":true' "$work/spmv.jsonl")" = 16 ] || fail "not all cases of bench spmv are verified"
expect_error 2 "takes no --dist" bench spmv --dist ties
expect_error 2 "no case" bench spmv --case nothing-like-this

# Recorded gradients: every case is there and verified, and the results have the expected order.
recording=$(dirname "$0")/../data/gradients.safetensors
if [ -n "${FRUG_TEST_SHORT:-}" ]; then # most of the time goes into matrices, one for each kappa
    for case in sparse-adamw best-s /7 chunks/2 adaptive/2; do
        "$frugrad" bench recover --gradients "$recording" --quick --case $case --json || fail "--gradients --case $case fails"
    done >"$work/gradients.jsonl"
    for case in sparse-adamw best-s {implicit,explicit}/{batch,gomp4}/7 table/7 chunks/2 adaptive/2; do
        grep -q "^{\"gradients\":\"$case\",.*\"verified\":true" "$work/gradients.jsonl" ||
            fail "$case is missing or not verified: $(cat "$work/gradients.jsonl")"
    done
else
    "$frugrad" bench recover --gradients "$recording" --quick --json >"$work/gradients.jsonl" || fail "bench recover --gradients fails"
    perl - "$work/gradients.jsonl" <<'PL' || fail "the lines of bench recover --gradients are not as promised"
my %rows;
while (my $line = <>) {
    my ($name) = $line =~ /^\{"gradients":"([^"]+)",.*\}$/ or die "not an object: $line";
    !$rows{$name} or die "$name is there twice";
    $rows{$name} = {$line =~ /"(\w+)":("[^"]*"|-?[0-9.]+(?:e[-+]?[0-9]+)?|true|false|null)(?=[,}])/g};
    $rows{$name}{verified} eq "true" or die "$name is not verified";
    $rows{$name}{$_} >= 0 && $rows{$name}{$_} <= 1.0001 or die "$name: $_ is $rows{$name}{$_}" for qw(found energy overlap);
    $rows{$name}{error} >= $rows{$name}{error_best} * 0.9999 or $name =~ /^(table|sparse)/ or die "$name is better than the best";
}
for my $kappa (5, 6, 7, 8, 10, 14) {
    $rows{"$_/$kappa"} or die "no case $_/$kappa" for qw(implicit/batch implicit/gomp4 explicit/batch explicit/gomp4 table);
}
for my $chunks (2, 4, 8) {
    $rows{"$_/$chunks"} or die "no case $_/$chunks" for qw(chunks adaptive);
}
$rows{$_} or die "no case $_" for qw(sparse-adamw best-s chunks/1);
my $exact = $rows{"sparse-adamw"};
$exact->{error} == 0 && $exact->{found} == 1 && $exact->{cosine} > 0.999999 or die "AdamW is not AdamW";
abs($rows{"table/14"}{cosine} - 1) < 1e-5 or die "a table that forgets nothing is not AdamW: $rows{'table/14'}{cosine}";
$rows{"chunks/1"}{overlap} == 1 or die "one chunk does not take the largest of all";
$rows{"implicit/batch/7"}{bytes} == 8 * 7 * 62 or die "states take $rows{'implicit/batch/7'}{bytes}";
PL
fi
"$frugrad" bench recover --gradients "$recording" --quick --case table --s 40 --chunk 1024 >"$work/table" || fail "a study with --s fails"
grep -q '^table/14  *4  *40 ' "$work/table" || fail "--s and --chunk do nothing: $(cat "$work/table")"
expect_error 2 "is for bench recover" bench --gradients "$recording"
expect_error 2 "takes no --chunk" bench reduce --chunk 64
expect_error 2 "for bench recover --gradients" bench recover --s 31
expect_error 2 "takes no --rounds" bench recover --gradients "$recording" --rounds 2
expect_error 2 "too many for kappa=14" bench recover --gradients "$recording" --s 1000
expect_error 2 "no case" bench recover --gradients "$recording" --case nothing-like-this
expect_error 1 "cannot" bench recover --gradients "$work/none.safetensors"

if "$frugrad" bench --quick --n 100000 --case decode --json >/dev/full 2>"$work/err"; then fail "bench does not notice a full disk"; fi

echo "bench_smoke: bench holds what it promises"
