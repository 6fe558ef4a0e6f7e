#!/bin/bash
# From text to a predictor that serves: profile, train, found beside the model, used, kept over a worker's death; and what is broken, of
# another model or not there at all is said in one line and does no harm.
#   training.sh MOED MODEL
MOED=$1 MODEL=$2
. "$(dirname "$0")/../deployment.sh"
docs=$(cd "$(dirname "$0")/../../docs" && pwd)
"$MOED" --help | grep -q '^ *profile ' || skip "this moed has no profile"

cp "$MODEL" "$WORK/model.gguf"
model=$WORK/model.gguf learned=$WORK/model.gguf.learned
device=emu:vram=30%,link=500M
up() { "$MOED" up "$model" --device "$device" "$@" >/dev/null 2>"$WORK/up"; }
down() { "$MOED" down >/dev/null 2>&1; }
answer() { "$MOED" run -n 60 --ignore-end --temp 0 "Once upon a time there was"; }
predictions() { "$MOED" policy --json | sed -n 's/.*"predictions": \[\([^]]*\)\].*/\1/p' | tr -d ' ' | tr ',' '+' | { read -r sum; echo $((sum)); }; }
warned() { grep '^warn' "$RUN/memd.log" | grep -q "$1"; }

say "profile and train"
"$MOED" profile "$model" --text "$docs"/p*.md "$docs"/o*.md "$docs"/t*.md --hidden all -o "$WORK/trace" >/dev/null 2>&1 || fail "profile"
"$MOED" train "$WORK/trace" --model "$model" --epochs 2 --json > "$WORK/report" 2>/dev/null || fail "train"
[ -s "$learned" ] || fail "nothing lies beside the model"
"$MOED" train "$WORK/trace" -o "$WORK/again" --epochs 2 --threads 1 --json > /dev/null 2>&1 || fail "train again"
cmp -s "$learned" "$WORK/again" || fail "another number of threads gives another file"
# what was learnt is better than the gate at the same distance
awk 'BEGIN { RS = "}" } /"far_gate"/ { split($0, a, "\"recall\": "); far += a[2] + 0 }
     /"mlp"/ { split($0, a, "\"recall\": "); mlp += a[2] + 0 } END { exit !(mlp > far && far > 0) }' "$WORK/report" ||
    fail "worse than the gate: $(cat "$WORK/report")"
for wrong in "--only gate" "--stride 8" "-o $WORK/x --model $model"; do
    "$MOED" train "$WORK/trace" $([ "${wrong#-o}" = "$wrong" ] && echo "-o $WORK/x") $wrong >/dev/null 2>"$WORK/err" && fail "train $wrong"
    [ "$(wc -l < "$WORK/err")" -eq 1 ] || fail "train $wrong: $(cat "$WORK/err")"
done
"$MOED" train "$model" -o "$WORK/x" >/dev/null 2>&1 && fail "a model is no trace"
[ ! -e "$WORK/x" ] || fail "a file was left of what failed"

say "not trained"
up --predictor mlp --learned none && fail "a predictor without what it knows"
grep -q "moed train" "$WORK/up" || fail "not said what to do: $(cat "$WORK/up")"
up --predictor none --learned none || fail "up"
answer > "$WORK/plain"
"$MOED" policy --predictor llapor >/dev/null 2>"$WORK/err" && fail "likewise while serving"
grep -q "moed train" "$WORK/err" || fail "not said what to do: $(cat "$WORK/err")"
down

say "found beside the model, and used"
up --predictor mlp --fine-tune || { cat "$WORK/up" >&2; fail "up"; }
answer > "$WORK/mlp"
cmp -s "$WORK/plain" "$WORK/mlp" || fail "another answer"
used() { answer >/dev/null; [ "$(predictions)" -gt 0 ]; }
wait_until 30 used || fail "mlp predicts nothing"
"$MOED" policy --predictor llapor >/dev/null || fail "llapor"
wait_until 30 used || fail "llapor predicts nothing"
kill -9 "$(pid_of worker)"
wait_until 30 used || fail "after the worker's death nothing is predicted"
"$MOED" policy --predictor residual >/dev/null || fail "residual"
answer > "$WORK/residual"
cmp -s "$WORK/plain" "$WORK/residual" || fail "another answer"
down

say "broken and foreign files"
head -c 3000 "$learned" > "$WORK/cut"
sed 's/moedlern/nothing!/' "$learned" > "$WORK/none"
{ head -c 100000 "$learned"; printf x; tail -c +100002 "$learned"; } > "$WORK/damaged"
for file in cut:bytes none:"no file" damaged:checksum; do
    rm -f "$RUN/memd.log"
    up --learned "$WORK/${file%%:*}" || fail "up with a file that is ${file%%:*}"
    warned "${file#*:}" || fail "no warning of ${file%%:*}"
    answer | cmp -s - "$WORK/plain" || fail "another answer with ${file%%:*}"
    down
done
"$MOED" mkmodel --arch qwen3moe --layers 3 --hidden 256 --experts 8 --top-k 2 --seed 1 -o "$WORK/other.gguf" >/dev/null 2>&1 || fail mkmodel
rm -f "$RUN/memd.log"
"$MOED" up "$WORK/other.gguf" --device "$device" --learned "$learned" >/dev/null || fail "up with another model's file"
warned "of another model" || fail "another model's file is not seen"
down
up --learned "$WORK/missing" && fail "a file that is not there"
say done
