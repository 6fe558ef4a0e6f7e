#!/bin/bash
# Models of a folder, loaded when a request names one and unloaded when nobody uses it: one at a time, in turns for many clients, out of
# memory, with a bad configuration; moed-models and moed-http killed; nothing left at the end. usage: models.sh MOED MODEL
MOED=$1 MODEL=$2
. "$(dirname "$0")/../deployment.sh"
command -v python3 > /dev/null || skip "python3 is not here"
# several deployments: each has its own directory below
unset MOED_RUN
export XDG_RUNTIME_DIR=$WORK/r
mkdir -m 700 "$XDG_RUNTIME_DIR"
end_models() {
    status=$?
    [ $status -eq 0 ] || [ $status -eq 77 ] || tail -n 30 "$XDG_RUNTIME_DIR"/moed/*/*.log >&2
    kill "${starting:-}" 2> /dev/null || true
    kill -CONT "${supervise:-}" 2> /dev/null || true
    "$MOED" down router > /dev/null 2>&1
    (exit $status)
    end
}
trap end_models EXIT
RUN=$XDG_RUNTIME_DIR/moed/router

folder=$WORK/models
mkdir -p "$folder/more" "$XDG_CONFIG_HOME/moed"
for name in alpha beta; do cp "$MODEL" "$folder/$name.gguf"; done
python3 "$(dirname "$0")/fim_model.py" "$MODEL" "$folder/misled.gguf" > /dev/null || fail "no model for fill-in-the-middle"
long="A model with a name (quantised) that is longer than a deployment's"
cp "$MODEL" "$folder/more/$long.gguf"
head -c 5000 "$MODEL" > "$folder/cut.gguf"
echo 'no model' > "$folder/notes.txt"
touch -d '1 minute ago' "$folder"/* "$folder"/more/* # a file that has just been written may not be complete
echo 'ctx = banana' > "$XDG_CONFIG_HOME/moed/misled.conf" # `moed up` reads it
echo 'ctx = 301' > "$XDG_CONFIG_HOME/moed/$long.conf"

"$MOED" up --models "$folder" --http 127.0.0.1:0 --models-most 1 --models-keep 60 --alias stand-in=alpha,no-one --name router > "$WORK/up" 2>&1 || fail "$(cat "$WORK/up")"
grep -q 'on demand' "$WORK/up" || fail "moed up prints: $(cat "$WORK/up")"
port=$(port_of "$RUN/http.log")
python3 "$(dirname "$0")/http_models.py" "$port" "$MOED" "$RUN" "$folder" "$MODEL" || fail "see above"
[ "$(grep -c 'cut.gguf is left out' "$RUN/models.log")" -ge 1 ] || fail "the log does not say why cut.gguf is not listed"
grep -q "starting $long .*options from .*/$long.conf" "$RUN/models.log" || fail "the log does not name the file of options"
"$MOED" down router > /dev/null || fail "moed down"
for pid in "$XDG_RUNTIME_DIR"/moed/*/supervise.pid; do [ ! -e "$pid" ] || fail "a deployment is left: $pid"; done

say "options of the folder's models, below those of each"
printf 'ctx = 302\nreproducible = true\n' > "$XDG_CONFIG_HOME/moed/router.conf"
printf '{%% for m in messages %%}Q: {{ m.content }}{%% endfor %%} {{ mood }} A:' > "$WORK/other.jinja"
cat > "$XDG_CONFIG_HOME/moed/alpha.conf" << END
ctx = 303
alias = any # of HTTP: for when it is started with --http
chat-template = $WORK/other.jinja
chat-template-kwargs = {"mood": "calm"}
reasoning-budget = 77
temp = 0
top-k = 11
presence-penalty = -0.5
END
"$MOED" up --models "$folder" --http 127.0.0.1:0 --kv-type q8_0 --chat-template-kwargs '{"tint":
"pale # grey"}' --name router > "$WORK/up" 2>&1 || fail "$(cat "$WORK/up")"
python3 "$(dirname "$0")/http_models.py" "$(port_of "$RUN/http.log")" --contexts gamma 302 alpha 303 --defaults alpha || fail "see above"
"$MOED" run --chat --name alpha -n 4 Hello > "$WORK/run" || fail "moed run --chat: $(cat "$WORK/run")"
tr '\0' ' ' < "/proc/$(tr -dc 0-9 < "$XDG_RUNTIME_DIR/moed/gamma/worker.pid")/cmdline" | grep -q -F '{"tint": "pale \u0023 grey"}' || fail "gamma has not the folder's JSON"
for name in gamma alpha; do
    for word in --reproducible --kv-type; do
        tr '\0' ' ' < "/proc/$(tr -dc 0-9 < "$XDG_RUNTIME_DIR/moed/$name/worker.pid")/cmdline" | grep -q -e "$word" || fail "$name has no $word"
    done
done
say "moed-models and the supervisor are killed: moed down stops what they have started"
supervise=$(pid_of supervise)
stop_process "$supervise"
kill -9 "$(pid_of models)" "$supervise"
"$MOED" down router > /dev/null || fail "moed down after a kill"
for pid in "$XDG_RUNTIME_DIR"/moed/*/supervise.pid; do [ ! -e "$pid" ] || fail "a deployment is left after a kill: $pid"; done
[ ! -e "$RUN/models.started" ] || fail "models.started is left"
rm "$XDG_CONFIG_HOME/moed/router.conf"

say "the supervisor is killed, as the last process, while moed down waits for it: its files are removed"
has_ended() { # its threads, too
    [ ! -e "/proc/$1" ] || { grep -q '^State:.Z' "/proc/$1/status" && [ "$(ls "/proc/$1/task" | wc -l)" -eq 1 ]; }
}
has_socket() { ls -l "/proc/$1/fd" | grep -q socket; }
"$MOED" up --models "$folder" --http 127.0.0.1:0 --name router > "$WORK/up" 2>&1 || fail "$(cat "$WORK/up")"
supervise=$(pid_of supervise) models=$(pid_of models) http=$(pid_of http)
stop_process "$supervise"
kill -9 "$models" "$http"
wait_until 10 has_ended "$models" && wait_until 5 has_ended "$http" || fail "they were not killed"
"$MOED" down router > /dev/null & down=$!
wait_until 10 has_socket $down || fail "moed down does not ask the supervisor"
kill -9 "$supervise"
wait $down || fail "moed down after a kill of the supervisor"
for file in supervise.pid supervise.sock; do [ ! -e "$RUN/$file" ] || fail "$file is left after a kill of the supervisor"; done

say "a model of its own and a folder, within 1 MB of memory for it; the folder has its file, too"
ln -s "$MODEL" "$folder/linked.gguf"
printf 'boss secret-of-boss\n' > "$WORK/admin"
chmod 600 "$WORK/admin"
"$MOED" up "$MODEL" --models "$folder" --models-memory 1M --any-model --alias stand-in --admin-key-file "$WORK/admin" --http 127.0.0.1:0 --name router > "$WORK/up" 2>&1 || fail "$(cat "$WORK/up")"
port=$(port_of "$RUN/http.log")
python3 "$(dirname "$0")/http_models.py" "$port" --no-memory "$(pid_of models)" || fail "see above"
"$MOED" models | grep -q '^linked .* up ' || fail "the model that runs is not up: $("$MOED" models)"
"$MOED" models --load linked | grep -q 'as deployment router' || fail "the model that runs is loaded again"
[ ! -e "$XDG_RUNTIME_DIR/moed/linked" ] || fail "a second deployment of one file"
"$MOED" run --name router -n 3 Hello > /dev/null || fail "the deployment's own model does not answer"
say "no worker runs, and then there is a new moed-http: 503 by every name"
supervise=$(pid_of supervise)
stop_process "$supervise"
python3 "$(dirname "$0")/http_models.py" "$port" --restarting "$(pid_of worker)" "$(pid_of models)" || fail "see above"
before=$(pid_of http)
kill -9 "$before"
wait_until 10 has_ended "$before" || fail "moed-http was not killed"
"$(dirname "$MOED")/moed-http" --run "$RUN" --listen 127.0.0.1:0 --models --name router --alias stand-in > /dev/null 2> "$WORK/http.log" &
starting=$!
wait_until 10 grep -q 'listening at' "$WORK/http.log" || fail "$(cat "$WORK/http.log")"
python3 "$(dirname "$0")/http_models.py" "$(port_of "$WORK/http.log")" --starting || fail "see above"
kill "$starting"
wait "$starting" || true
starting=
chmod 644 "$WORK/admin" # moed-http refuses that file, so it does not come back
kill -CONT "$supervise"
lacks_http() { ! "$MOED" health --name router > "$WORK/health" 2>&1 && grep -q '^moed: moed-http is ' "$WORK/health"; }
wait_until 20 lacks_http || fail "moed health without moed-http: $(cat "$WORK/health")"

"$MOED" down router > /dev/null || fail "moed down"
say "a folder without models"
mkdir -p "$WORK/none/a/b"
"$MOED" up --models "$WORK/none" --http 127.0.0.1:0 --name router > "$WORK/up" 2>&1 || fail "$(cat "$WORK/up")"
"$MOED" models > "$WORK/list" 2>&1 || fail "moed models: $(cat "$WORK/list")"
"$MOED" run --name router Hello > "$WORK/run" 2>&1 && fail "an answer without a model"
grep -q "router serves a folder and has no model of its own: .*models --load" "$WORK/run" || fail "moed run: $(cat "$WORK/run")"
for place in "$WORK/up" "$WORK/list" "$RUN/models.log"; do
    grep -q "no GGUF file in $WORK/none, 5 levels" "$place" || fail "no word on the empty folder in $(cat "$place")"
done

for wrong in "--chat-template-kwargs [1] $MODEL" "--chat-template /nowhere $MODEL" "--top-k 2.5 $MODEL" "--alias x $MODEL" "--models /nowhere" "--models $folder" "--models-keep 3 $MODEL" "--models $folder --models-memory much --http 0"; do
    # shellcheck disable=SC2086
    if "$MOED" up --name other $wrong > "$WORK/up" 2>&1; then fail "moed up $wrong is accepted"; fi
    [ "$(wc -l < "$WORK/up")" -le 2 ] || fail "moed up $wrong says: $(cat "$WORK/up")"
done
if "$MOED" up --name other --models "$folder" --http 0 --ram "1 #2" > "$WORK/up" 2>&1; then fail "a value that no file of options can hold is accepted"; fi
grep -q "a '#' after a blank" "$WORK/up" || fail "--ram '1 #2' says: $(cat "$WORK/up")"
if MOED_RUN=$WORK/run "$MOED" up --models "$folder" --http 0 > "$WORK/up" 2>&1; then fail "--models with MOED_RUN is accepted"; fi
grep -q MOED_RUN "$WORK/up" || fail "--models with MOED_RUN says: $(cat "$WORK/up")"
say ok
