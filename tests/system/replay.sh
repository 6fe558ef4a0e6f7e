#!/bin/sh
# replay.sh MOED-REPLAY MOED: moed-replay synthesizes a trace and replays it with every policy, with predictors trained on another
# trace too. The test compares the table, the CSV file and the page, and gives invalid arguments. It needs no deployment.
set -eu
replay=$1 moed=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail()
{
    echo "replay.sh: $*" >&2
    exit 1
}

# column FILE NAME: prints a column of a CSV file without its header. Only the last columns may have quotes.
column()
{
    awk -F, -v name="$2" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) at = i; next } { print $at }' "$1"
}

# refused STATUS TEXT ARGUMENT...: moed-replay exits with STATUS and prints one line that contains TEXT.
refused()
{
    status=$1 text=$2
    shift 2
    got=0
    "$replay" "$@" >"$work/out" 2>"$work/err" || got=$?
    [ "$got" = "$status" ] || fail "$* ended with $got, not $status"
    grep -qF -e "$text" "$work/err" || fail "$*: expected the message \"$text\", got \"$(cat "$work/err")\""
    [ "$(wc -l <"$work/err")" = 1 ] || fail "$*: more than one line of message"
}

"$replay" --list | grep -q "^  least-stale  *what this pass" || fail "--list lacks the cache least-stale"

make()
{
    "$replay" --synthesize --layers 4 --experts 16 --topk 2 --tokens 600 --sequence 100 --prompt 20 "$@"
}

# ---- A trace, the same for the same seed ----
make --seed 5 -o "$work/a.trace"
make --seed 5 -o "$work/b.trace"
make --seed 6 -o "$work/c.trace"
cmp -s "$work/a.trace" "$work/b.trace" || fail "the same seed made another trace"
! cmp -s "$work/a.trace" "$work/c.trace" || fail "another seed made the same trace"

# ---- The table: two replays are equal but for the time of the decisions ----
for run in 1 2; do
    "$replay" "$work/a.trace" --policies all --vram 25%,50% --batch 1,4 --machine desktop \
        --csv "$work/$run.csv" --html "$work/$run.html" >"$work/$run.txt" 2>"$work/$run.err"
    at=$(head -1 "$work/$run.csv" | tr , '\n' | grep -n '^decision_s$' | cut -d: -f1)
    cut -d, -f"$at" --complement "$work/$run.csv" >"$work/$run.same"
done
cmp -s "$work/1.same" "$work/2.same" || fail "two replays differ"

policies=$("$replay" --help | sed -n 's/^policies: //p' | tr -d ,)
[ -n "$policies" ] || fail "--help lists no policies"
for policy in $policies; do
    [ "$(column "$work/1.csv" policy | grep -cx "$policy")" = 4 ] || fail "$policy has not four rows"
    [ "$(grep -c "^$policy " "$work/1.txt")" = 4 ] || fail "$policy is not four times in the table"
    grep -q ">$policy<" "$work/1.html" || fail "$policy is not on the page"
done
column "$work/1.csv" decode_tokens_per_s | awk '!($1 > 0) { exit 1 }' || fail "a policy decodes nothing"
column "$work/1.csv" hit_rate | awk '!($1 >= 0 && $1 <= 1) { exit 1 }' || fail "a hit rate is no share"
! grep -qi 'nan' "$work/1.csv" || fail "nan in the CSV"

# ---- Predictors ----
# figure FILE POLICY NAME: prints a figure of a policy's first row.
figure() { awk -F, -v policy="$2" -v name="$3" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) at = i }
    $1 == policy { print $at; exit }' "$1"; }
predicts="mixtral-offloading eam score dali prescope moepic promoe finemoe specmd adapmoe fate klotski moed"
for policy in $policies; do
    accuracy=$(figure "$work/1.csv" "$policy" prefetch_accuracy)
    case " $predicts " in
    *" $policy "*) [ -n "$accuracy" ] || fail "$policy predicts nothing" ;;
    *) [ -z "$accuracy" ] || fail "$policy predicts" ;;
    esac
done
# Without trained predictors moed-replay replaces a policy's default predictor and says so in one line. It refuses a predictor that
# the user names.
[ "$(cat "$work/1.err")" = "moed-replay: the predictor has to be trained (\`moed train\`), and there is no --predictors: this run uses prescope with expert-map, promoe with next-gate" ] ||
    fail "no message about the replaced predictors: $(cat "$work/1.err")"
refused 2 "predictor mlp has to be trained" "$work/a.trace" --policies promoe/predictor=mlp

make --seed 5 --first-sequence 1000 -o "$work/other.trace"
"$moed" train "$work/other.trace" -o "$work/trained" --epochs 4 --threads 1 >/dev/null 2>"$work/err" || fail "train: $(cat "$work/err")"
"$replay" "$work/a.trace" --policies promoe,prescope,moed --predictors "$work/trained" --csv "$work/trained.csv" >"$work/out" 2>"$work/err"
[ ! -s "$work/err" ] || fail "with trained predictors moed-replay prints: $(cat "$work/err")"
for policy in promoe prescope; do
    accuracy=$(figure "$work/trained.csv" "$policy" prefetch_accuracy)
    awk -v a="$accuracy" 'BEGIN { exit !(a > 2 / 16) }' || fail "$policy, trained: accuracy $accuracy, no better than chance"
    [ "$accuracy" != "$(figure "$work/1.csv" "$policy" prefetch_accuracy)" ] || fail "$policy: training does not change the accuracy"
done
# Predictors of another model, of another shape, and with one part only.
refused 1 "the gates are not the same" "$work/c.trace" --predictors "$work/trained"
make --seed 5 --experts 8 -o "$work/few.trace"
refused 1 "it is of another model" "$work/few.trace" --predictors "$work/trained"
"$moed" train "$work/other.trace" -o "$work/residual" --only residual --threads 1 >/dev/null 2>&1 || fail "train --only residual"
"$replay" "$work/a.trace" --policies promoe --predictors "$work/residual" >"$work/out" 2>"$work/err"
grep -qx "moed-replay: .*the file of --predictors lacks it: this run uses promoe with next-gate" "$work/err" || fail "predictors with one part: $(cat "$work/err")"
# moed-replay predicts in prompts of up to 32 tokens by default, in longer ones with --predict-tokens.
"$replay" "$work/a.trace" --policies moed --prompt 40 --csv "$work/32.csv" >"$work/out"
"$replay" "$work/a.trace" --policies moed --prompt 40 --predict-tokens 512 --csv "$work/512.csv" >"$work/out"
[ "$(figure "$work/32.csv" moed prefill_tokens_per_s)" != "$(figure "$work/512.csv" moed prefill_tokens_per_s)" ] ||
    fail "--predict-tokens makes no difference in prompts"

# lru hits more with more slots: a large cache holds every expert that a small one holds.
"$replay" "$work/a.trace" --policies lru --vram 25%,50%,75%,100% --csv "$work/lru.csv" >"$work/out"
column "$work/lru.csv" hit_rate | awk '$1 < last { exit 1 } { last = $1 }' || fail "lru hits less with more slots"

# Another machine takes another time.
"$replay" "$work/a.trace" --policies moed --csv "$work/desktop.csv" >"$work/out"
"$replay" "$work/a.trace" --policies moed --machine 3090-epyc7532 --csv "$work/3090.csv" >"$work/out"
[ "$(column "$work/desktop.csv" decode_tokens_per_s)" != "$(column "$work/3090.csv" decode_tokens_per_s)" ] ||
    fail "two machines take the same time"

# ---- Invalid arguments ----
refused 2 "the trace is missing"
refused 2 "no policy \"nothing\"" "$work/a.trace" --policies lru,nothing
refused 2 "cache \"nope\" is not known; there are" "$work/a.trace" --policies moed/cache=nope
refused 2 "cache value does not take budget uniform; it takes global" "$work/a.trace" --policies moed/budget=uniform
refused 2 "--predict-tokens" "$work/a.trace" --predict-tokens 513
refused 2 "--vram" "$work/a.trace" --vram 120%
refused 2 "--batch" "$work/a.trace" --batch 0
refused 1 "desktop" "$work/a.trace" --machine no-such-machine
refused 2 "no option --polices" "$work/a.trace" --polices all
refused 1 "$work/none.trace" "$work/none.trace"
refused 2 "-o TRACE" --synthesize
refused 2 "qwen3-30b" --synthesize --like qwen -o "$work/d.trace"
refused 2 "moepic-table1" --fit nothing
refused 1 "$work/none/x.trace" --synthesize -o "$work/none/x.trace"
[ ! -e "$work/d.trace" ] || fail "a refused trace was made"
printf 'name = half\n' >"$work/half.machine"
refused 1 "half.machine:1: the key what is missing" "$work/a.trace" --machine "$work/half.machine"
head -c 1000 "$work/a.trace" >"$work/cut.trace"
refused 1 "cut.trace" "$work/cut.trace"
echo "replay.sh: ok"
