#!/bin/sh
# replay_report.sh MOED-REPLAY: `moed-replay --report --short` on a tiny grid. The report's counts follow from its cells, a run
# that lost some of its results continues with the same report, and the page is well-formed. It needs no deployment.
set -eu
replay=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail()
{
    echo "replay_report.sh: $*" >&2
    exit 1
}

# refused STATUS TEXT ARGUMENT...: moed-replay exits with STATUS and prints one line that contains TEXT.
refused()
{
    status=$1 text=$2 got=0
    shift 2
    "$replay" "$@" >"$work/out" 2>"$work/err" || got=$?
    [ "$got" = "$status" ] || fail "$* ended with $got, not $status: $(cat "$work/err")"
    grep -qF -e "$text" "$work/err" || fail "$*: expected the message \"$text\", got \"$(cat "$work/err")\""
}

report()
{
    "$replay" --report "$work/report" --short --models demo --machines desktop --seeds 1 --policies moed,qstar,lru,promoe \
        >"$work/out" 2>"$work/err" || fail "--report: $(cat "$work/err")"
}

report
for name in report.html report.md cells.csv; do
    [ -s "$work/report/$name" ] || fail "$name is missing"
done
[ "$(ls "$work/report/jobs" | wc -l)" = 5 ] || fail "not 5 jobs: $(ls "$work/report/jobs")"
[ -z "$(ls "$work/report/jobs" | grep -v 'csv$')" ] || fail "something is left beside the results: $(ls "$work/report/jobs")"

# The table's counts are those of cells.csv, and a cell's ratio is that of the jobs' files.
for metric in decode prefill; do
    counted=$(awk -F, -v m=$metric 'NR > 1 && $1 == m { n[$NF]++; all++; sum += log($13) }
        END { printf "%d | %d | %d | %d | %.3f", all, n["win"], n["tie"], n["loss"], exp(sum / all) }' "$work/report/cells.csv")
    grep -qF "| the best other of each cell, $metric | $counted |" "$work/report/report.md" || fail "$metric: the cells say $counted"
    grep -qF "$counted" "$work/out" || fail "$metric: the terminal has not $counted"
    losses=$(awk -F, -v m=$metric '$1 == m && $NF == "loss"' "$work/report/cells.csv" | wc -l)
    listed=$(awk -v m="## Losses, $metric" '/^## / { on = $0 == m } on && /^\| (machines|axes|curves)/' "$work/report/report.md" | wc -l)
    [ "$losses" = "$listed" ] || fail "$metric: $losses losses, $listed listed"
done
# cell POLICY: the decode speed at 10 %, batch 4.
cell()
{
    awk -F, -v p="$1" '$1 == p && $2 > 0.09 && $2 < 0.11 && $3 == 4 { print $4 }' "$work"/report/jobs/machines.demo.desktop.*
}
awk -F, -v moed="$(cell moed)" -v qstar="$(cell qstar)" '
    $1 == "decode" && $2 == "machines" && $9 == 0.1 && $10 == 4 {
        found = 1
        want = moed / qstar
        if ($12 != "qstar" || $13 / want > 1.00001 || $13 / want < 0.99999) { print "cells.csv: " $0 ", not " want; exit 1 } }
    END { if (!found) { print "no such cell"; exit 1 } }' "$work/report/cells.csv" >"$work/why" || fail "$(cat "$work/why")"
grep -q "next-gate in place of mlp" "$work/report/report.md" || fail "the report hides that promoe has no trained predictor"

# Interrupted: only what is missing or of another program is computed again.
cp -r "$work/report" "$work/first"
set -- "$work"/report/jobs/*
rm "$1"
sed -i '1s/ [0-9a-f]* / 0123456789abcdef /' "$2"
touch -d 2001-01-01 "$3"
report
cmp -s "$work/first/cells.csv" "$work/report/cells.csv" || fail "the continued run has another report"
[ "$(date -r "$3" +%Y)" = 2001 ] || fail "a result that was there was computed again"
for file in "$1" "$2"; do
    cmp -s "$file" "$work/first/jobs/${file##*/}" || fail "$file differs from the first run's"
done

# Of another grid: a job of the same name with other sizes or batches is computed again.
set -- "$work"/report/jobs/*
sed -i '1s/ x1\b/ x2/' "$1"
report
cmp -s "$1" "$work/first/jobs/${1##*/}" || fail "results of other batches were taken for this grid's"

# The page: well-formed, with a curve of every policy and the bound for each batch.
if python3 -c 'import xml.dom.minidom' 2>/dev/null; then
    python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' "$work/report/report.html" || fail "the page is not well-formed"
fi
[ "$(grep -c '<title>bound</title>' "$work/report/report.html")" = 1 ] || fail "not one curve of the bound"
for policy in moed qstar lru promoe; do
    grep -q "<title>$policy</title></path>" "$work/report/report.html" || fail "no curve of $policy"
done
! grep -qi 'nan\|inf[^o]' "$work/report/cells.csv" || fail "a figure is not a number"

refused 2 "gpt-9" --report "$work/none" --models gpt-9
refused 2 "toaster" --report "$work/none" --machines desktop,toaster
refused 2 "name moed and others" --report "$work/none" --policies lru,lfu
refused 2 "no policy \"nothing\"" --report "$work/none" --policies moed,nothing
[ ! -e "$work/none" ] || fail "a refused report made a folder"
: >"$work/file"
refused 1 "$work/file" --report "$work/file" --short --models demo --machines desktop
echo "replay_report.sh: ok"
