#!/bin/bash
# From text to a predictor in use: profile, train, find the file next to the model, predict with it, keep it when the worker dies.
# If the file is broken, missing or of another model, memd logs one line and the deployment gives the same answers.
#   training.sh MOED MODEL ROUND-ROUTERS
MOED=$1 MODEL=$2 ROUND=$3
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
"$MOED" profile "$model" --text "$docs"/operations.md "$docs"/metrics.md --hidden all --max-tokens 6000 -o "$WORK/trace" >/dev/null 2>&1 || fail "profile"
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
"$MOED" train "$WORK/trace" -o "$WORK/missing/x" --epochs 100000 >/dev/null 2>"$WORK/err" && fail "train writes to a missing folder"
grep -q "missing/x: cannot be created" "$WORK/err" || fail "missing folder: $(cat "$WORK/err")"
[ -z "$(ls "$WORK" | grep '^x')" ] || fail "a failed train left a file"

say "what a file holds already"
"$MOED" profile "$model" --text "$docs"/operations.md --hidden all --max-tokens 3000 -o "$WORK/small" >/dev/null 2>&1 || fail "profile 3000 tokens"
fact() { "$MOED" inspect --json "$1" | sed -n "s/.*\"$2\": *\([^,}]*\).*/\1/p"; }
residual() { "$MOED" train "$WORK/small" -o "$WORK/all" --only residual "$@" >/dev/null 2>"$WORK/err"; }
cp "$(dirname "$MODEL")/demo.mtp.predictors" "$WORK/all"
residual || fail "--only residual over an MTP: $(cat "$WORK/err")"
[ "$(fact "$WORK/all" mtp)" = true ] && [ "$(fact "$WORK/all" residual_layers)" -gt 0 ] || fail "--only residual: $("$MOED" inspect "$WORK/all")"
[ "$("$MOED" inspect --json "$WORK/all" "$model" | grep -c '"fits": true')" = 1 ] || fail "inspect: $("$MOED" inspect "$WORK/all" "$model")"
cp "$WORK/all" "$WORK/was"
(ulimit -f 10; residual) && fail "train writes more than it may"
grep -q 'File too large' "$WORK/err" && cmp -s "$WORK/all" "$WORK/was" || fail "a full disk: $(cat "$WORK/err")"
for broken in text damaged; do
    echo "a text" > "$WORK/all"
    [ $broken = text ] || { head -c 100000 "$trained_file"; printf x; tail -c +100002 "$trained_file"; } > "$WORK/all"
    cp "$WORK/all" "$WORK/was"
    residual && fail "train replaces a $broken file"
    grep -q -- "--force" "$WORK/err" && cmp -s "$WORK/all" "$WORK/was" || fail "a $broken file: $(cat "$WORK/err")"
done
"$MOED" inspect --json "$WORK/all" "$model" | grep -q '"intact": false, "fits": false' || fail "a damaged file: $("$MOED" inspect --json "$WORK/all" "$model")"
residual --force && [ "$(fact "$WORK/all" mlp_layers)" = 0 ] || fail "--force: $(cat "$WORK/err")"
[ -z "$(ls "$WORK" | grep '^all\.tmp')" ] || fail "train leaves an unfinished file"

say "Ctrl-C and --seconds"
"$MOED" train "$WORK/small" -o "$WORK/part" --epochs 100000 --seconds 1 --threads 2 > /dev/null 2>"$WORK/err" || fail "--seconds: $(cat "$WORK/err")"
cp "$WORK/part" "$WORK/was"
"$MOED" train "$WORK/small" -o "$WORK/part" --epochs 100000 > /dev/null 2>"$WORK/err" &
training=$!
trains() { grep -q "of networks" "$WORK/err"; }
wait_until 60 trains || fail "no network is trained: $(cat "$WORK/err")"
kill -INT $training
set +e; wait $training; code=$?; set -e
[ $code -eq 130 ] && cmp -s "$WORK/part" "$WORK/was" || fail "Ctrl-C: exit code $code: $(cat "$WORK/err")"

say "the same model in another file"
for copy in name routers; do
    other=$WORK/$copy.gguf
    cp "$MODEL" "$other"
    [ $copy = name ] && LC_ALL=C sed -i 's/moed demo/my moedel/' "$other" || "$ROUND" "$other" > /dev/null || fail "round the routers"
    cmp -s "$MODEL" "$other" && fail "the copy is the same"
    "$MOED" train "$WORK/small" --model "$other" --epochs 1 --only mlp >/dev/null 2>"$WORK/err" || fail "train for another $copy: $(cat "$WORK/err")"
    "$MOED" up "$other" --device "$device" --predictor mlp >/dev/null 2>"$WORK/up" || fail "another $copy: $(cat "$WORK/up")"
    grep -q "not used" "$WORK/up" && fail "another $copy: $(cat "$WORK/up")"
    down
done

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
    [ "$(grep -c "${file%%:*} is not used: .*${file#*:}" "$WORK/up")" = 1 ] || fail "up says of the file ${file%%:*}: $(cat "$WORK/up")"
    warned "${file#*:}" || fail "no warning about the file ${file%%:*}"
    answer | cmp -s - "$WORK/plain" || fail "another answer with ${file%%:*}"
    down
done
"$MOED" mkmodel --arch qwen3moe --layers 3 --hidden 256 --experts 8 --top-k 2 --seed 1 -o "$WORK/other.gguf" >/dev/null 2>&1 || fail mkmodel
rm -f "$RUN/memd.log"
"$MOED" up "$WORK/other.gguf" --device "$device" --predictors "$trained_file" >/dev/null 2>"$WORK/up" || fail "up with another model's file"
grep -q "is not used: it is of another model" "$WORK/up" || fail "up says of another model's file: $(cat "$WORK/up")"
warned "of another model" || fail "no warning about another model's file"
down
up --predictors "$WORK/missing" && fail "up accepts a missing file"
say done
