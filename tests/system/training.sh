#!/bin/bash
# From text to a predictor in use: profile, train, find the file next to the model, predict with it, keep it when the worker dies.
# If the file is broken, missing or of another model, memd logs one line and the deployment gives the same answers.
#   training.sh MOED MODEL
MOED=$1 MODEL=$2
. "$(dirname "$0")/../deployment.sh"
docs=$(cd "$(dirname "$0")/../../docs" && pwd)
"$MOED" --help | grep -q '^ *profile ' || skip "this moed has no profile"

cp "$MODEL" "$WORK/model.gguf"
model=$WORK/model.gguf trained_file=$WORK/model.gguf.predictors
device=emu:vram=30%,link=500M
up() { "$MOED" up "$model" --device "$device" "$@" >/dev/null 2>"$WORK/up"; }
down() { "$MOED" down >/dev/null 2>&1; }
answer() { "$MOED" run -n 60 --ignore-end --temp 0 "Once upon a time there was"; }
predictions() { "$MOED" policy --json | sed -n 's/.*"predictions": \[\([^]]*\)\].*/\1/p' | tr -d ' ' | tr ',' '+' | { read -r sum; echo $((sum)); }; }
warned() { grep ' warn memd ' "$RUN/memd.log" | grep -q "$1"; }

say "profile and train"
"$MOED" profile "$model" --text "$docs"/operations.md "$docs"/metrics.md "$docs"/messages.md "$docs"/token.md --hidden all -o "$WORK/trace" >/dev/null 2>&1 || fail "profile"
"$MOED" train "$WORK/trace" --model "$model" --epochs 2 --json > "$WORK/report" 2>/dev/null || fail "train"
[ -s "$trained_file" ] || fail "train wrote no file next to the model"
"$MOED" train "$WORK/trace" -o "$WORK/again" --epochs 2 --threads 1 --json > /dev/null 2>&1 || fail "train again"
cmp -s "$trained_file" "$WORK/again" || fail "another number of threads gives another file"
# the trained predictor has a better recall than the next gate two layers ahead
awk 'BEGIN { RS = "}" } /"far_gate"/ { split($0, a, "\"recall\": "); far += a[2] + 0 }
     /"mlp"/ { split($0, a, "\"recall\": "); mlp += a[2] + 0 } END { exit !(mlp > far && far > 0) }' "$WORK/report" ||
    fail "worse than the gate: $(cat "$WORK/report")"
for wrong in "--only gate" "--stride 8" "-o $WORK/x --model $model"; do
    "$MOED" train "$WORK/trace" $([ "${wrong#-o}" = "$wrong" ] && echo "-o $WORK/x") $wrong >/dev/null 2>"$WORK/err" && fail "train $wrong"
    [ "$(wc -l < "$WORK/err")" -eq 1 ] || fail "train $wrong: $(cat "$WORK/err")"
done
"$MOED" mkmodel -o "$WORK/other.gguf" --layers 8 --experts 32 --top-k 4 --hidden 256 > /dev/null # of the same shape, with other weights
for other in "$WORK/other.gguf" "$(dirname "$0")/../golden/olmoe.gguf"; do
    "$MOED" train "$WORK/trace" --model "$other" >/dev/null 2>"$WORK/err" && fail "train for another model"
    grep -q "is a trace of another model (moed demo)" "$WORK/err" && [ ! -e "$other.predictors" ] || fail "train for $other: $(cat "$WORK/err")"
done
"$MOED" train "$model" -o "$WORK/x" >/dev/null 2>&1 && fail "train accepts a model as a trace"
[ ! -e "$WORK/x" ] || fail "a failed train left a file"

say "not trained"
up --predictor mlp --predictors none && fail "up accepts mlp without trained predictors"
grep -q "moed train" "$WORK/up" || fail "the message does not name \`moed train\`: $(cat "$WORK/up")"
up --predictor none --predictors none || fail "up"
answer > "$WORK/plain"
"$MOED" policy --predictor llapor >/dev/null 2>"$WORK/err" && fail "a running deployment accepts llapor without trained predictors"
grep -q "moed train" "$WORK/err" || fail "the message does not name \`moed train\`: $(cat "$WORK/err")"
down

say "the file next to the model"
up --predictor mlp --fine-tune || { cat "$WORK/up" >&2; fail "up"; }
answer > "$WORK/mlp"
cmp -s "$WORK/plain" "$WORK/mlp" || fail "another answer"
used() { answer >/dev/null; [ "$(predictions)" -gt 0 ]; }
wait_until 30 used || fail "mlp predicts nothing"
"$MOED" policy --predictor llapor >/dev/null || fail "llapor"
wait_until 30 used || fail "llapor predicts nothing"
kill -9 "$(pid_of worker)"
wait_until 30 used || fail "the restarted worker predicts nothing"
"$MOED" policy --predictor residual >/dev/null || fail "residual"
answer > "$WORK/residual"
cmp -s "$WORK/plain" "$WORK/residual" || fail "another answer"
down

say "a block that predicts the next token"
up --predictor mtp --predictors "$(dirname "$MODEL")/demo.mtp.predictors" || { cat "$WORK/up" >&2; fail "up with mtp"; }
answer | cmp -s - "$WORK/plain" || fail "another answer with mtp"
wait_until 30 used || fail "mtp predicts nothing"
down

say "broken and foreign files"
head -c 3000 "$trained_file" > "$WORK/cut"
sed 's/moedlern/nothing!/' "$trained_file" > "$WORK/none"
{ head -c 100000 "$trained_file"; printf x; tail -c +100002 "$trained_file"; } > "$WORK/damaged"
for file in cut:bytes none:"no file" damaged:checksum; do
    rm -f "$RUN/memd.log"
    up --predictors "$WORK/${file%%:*}" || fail "up with a file that is ${file%%:*}"
    warned "${file#*:}" || fail "no warning about the file ${file%%:*}"
    answer | cmp -s - "$WORK/plain" || fail "another answer with ${file%%:*}"
    down
done
"$MOED" mkmodel --arch qwen3moe --layers 3 --hidden 256 --experts 8 --top-k 2 --seed 1 -o "$WORK/other.gguf" >/dev/null 2>&1 || fail mkmodel
rm -f "$RUN/memd.log"
"$MOED" up "$WORK/other.gguf" --device "$device" --predictors "$trained_file" >/dev/null || fail "up with another model's file"
warned "of another model" || fail "no warning about another model's file"
down
up --predictors "$WORK/missing" && fail "up accepts a missing file"
say done
