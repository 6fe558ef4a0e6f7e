#!/bin/bash
# What experts cost is measured once a machine and model, kept, used at the next start and shown; a broken file is measured anew.
# And what is shown of a running expert cache: what the host device cannot measure is absent there.
#   calibration.sh MOED MODEL
MOED=$1 MODEL=$2
. "$(dirname "$0")/../deployment.sh"

device=emu:vram=40%,link=500M
up() { "$MOED" up "$MODEL" --device "$device" "$@" >/dev/null 2>"$WORK/up" || { cat "$WORK/up" >&2; fail "up $*"; }; }
down() { "$MOED" down >/dev/null 2>&1; }
# value KEY: of the only calibration, by the JSON that is shown
value() { "$MOED" inspect --calibration --json | tr -d '[]' | tr ',{' '\n' | awk -F': ' -v k="\"$1\"" '{ gsub(/^ +/, "", $1) } $1 == k { print $2; exit }'; }
log_has() { grep -q "$1" "$RUN/worker.log"; }
forget_logs() { rm -f "$RUN"/*.log; }

say "first start"
"$MOED" inspect --calibration >/dev/null 2>&1 && fail "a calibration before there was any"
up
log_has "calibrated in" || fail "nothing was measured"
file=$(ls "$XDG_CACHE_HOME"/moed/*.calibration) || fail "nothing is kept"
[ "$(printf '%s\n' "$file" | wc -l)" -eq 1 ] || fail "several files: $file"
# 500 MB/s and 10 us a copy, whatever else the machine does
bytes=$(value segment_bytes) took=$(value link_segment_s)
awk -v b="$bytes" -v t="$took" 'BEGIN { want = b / 500e6 + 10e-6; exit !(t > 0.85 * want && t < 1.3 * want) }' ||
    fail "a segment of $bytes bytes in $took s over a link of 500 MB/s"
"$MOED" inspect --calibration | grep -q "ms a segment" || fail "no table"
"$MOED" inspect --calibration | grep -q "layers since took" || fail "the running deployment's corrections are not shown"

say "what is shown of the cache"
"$MOED" ps | grep -q "cache: .*filled" || fail "no line in ps"
"$MOED" run -n 20 --ignore-end --temp 0 "Once upon a time" >/dev/null || fail "no answer"
"$MOED" ps --json > "$WORK/ps.json" # figures of the last seconds: at once
"$MOED" ps > "$WORK/ps"
grep -q "cache: hit rate [0-9.]* %, [0-9.]* % of it filled, link [0-9.]* GB/s, busy [0-9.]* %" "$WORK/ps" ||
    { cat "$WORK/ps" >&2; fail "the line in ps"; }
grep -q '"hit_rate": 0\.[0-9]*' "$WORK/ps.json" || fail "no hit rate in ps --json"
grep -q "layers: [0-9.]* ms each, predicted [0-9.]* ms, planned in [0-9.]* ms, device busy [0-9.]* %, CPU busy [0-9.]* %" "$WORK/ps" ||
    { cat "$WORK/ps" >&2; fail "the line of layers in ps"; }
for name in device_busy_share cpu_busy_share layer_s layer_predicted_s plan_s; do
    grep -q "\"$name\": 0\.[0-9]*" "$WORK/ps.json" || fail "no $name in ps --json"
done
"$MOED" metrics > "$WORK/metrics"
names="moed_worker_segments_total moed_worker_plan_seconds_count moed_worker_device_busy_seconds_total
    moed_worker_cpu_busy_seconds_total moed_worker_layers_total moed_worker_layer_seconds_total
    moed_worker_layer_predicted_seconds_total moed_worker_layer_error_seconds_total moed_worker_cost_correction
    moed_memd_slots moed_memd_link_bytes_total moed_memd_link_busy_seconds_total moed_memd_predicted_bytes_total
    moed_memd_predicted_used_bytes_total moed_memd_asked_bytes_total moed_memd_used_bytes_total moed_memd_wasted_bytes_total moed_memd_load_queue_seconds_count
    moed_memd_copy_seconds_count"
for name in $names; do grep -q "^$name[{ ]" "$WORK/metrics" || fail "no metric $name"; done
number() { awk -v n="$1" '$1 == n { print $2 }' "$WORK/metrics"; }
awk -v layers="$(number moed_worker_layers_total)" -v plans="$(number moed_worker_plan_seconds_count)" \
    -v took="$(number moed_worker_layer_seconds_total)" -v off="$(number moed_worker_layer_error_seconds_total)" \
    -v predicted="$(number moed_worker_layer_predicted_seconds_total)" \
    -v busy="$(number moed_worker_device_busy_seconds_total)" -v copied="$(number moed_memd_predicted_bytes_total)" \
    -v used="$(number moed_memd_predicted_used_bytes_total)" \
    'BEGIN { d = took - predicted; if (d < 0) d = -d
             exit !(layers > 0 && plans >= layers && took > 0 && predicted > 0 && off >= d * 0.999 && busy > 0 && used <= copied) }' ||
    fail "metrics that do not go together: $(grep 'layer\|busy\|predicted' "$WORK/metrics" | grep -v '^#')"
# what the calibration copied is not traffic; a device without dense weights and KV cache says nothing of them
copied() { sed -n "s/^moed_memd_copied_bytes_total{why=\"$1\"} //p" "$WORK/metrics"; }
[ "$(copied calibration)" -gt 0 ] || fail "nothing was copied to calibrate"
[ "$(number moed_memd_link_bytes_total)" = $(($(copied demanded) + $(copied prefetched))) ] ||
    fail "the link's bytes are not those of why: $(grep 'memd_.*bytes' "$WORK/metrics" | grep -v '^#')"
grep -q 'moed_memd_device_bytes{use="experts"}' "$WORK/metrics" || fail "no bytes of experts on the device"
! grep -q 'moed_memd_device_bytes{use="[dks]\|moed_worker_segments_awaited' "$WORK/metrics" || fail "a zero for what there is not"
slots=$(awk '/^moed_memd_slots/ { n += $2 } END { print n }' "$WORK/metrics")
[ "$slots" = "$(policy_field slots)" ] || fail "slots that do not add up: $slots"
# figures of a policy begin when it is chosen
"$MOED" policy ondemand --json | grep -q '"segments_resident": 0, "segments_loaded": 0, "segments_cpu": 0' || fail "figures of the policy before"
"$MOED" run -n 4 --ignore-end --temp 0 "Once upon a time" >/dev/null || fail "no answer"
[ "$(policy_field segments_loaded)" -gt 0 ] && [ "$(policy_field segments_cpu)" = 0 ] || fail "ondemand: $("$MOED" policy --json)"
[ "$(metric memd moed_memd_asked_bytes_total)" -gt 0 ] && [ "$(metric memd moed_memd_used_bytes_total)" -gt 0 ] || fail "nothing asked for or used"
down
for line in "memd.*cache, last [0-9]* s: .*MB copied.*link busy" "worker.*experts, last .*device busy" "worker.*layers, last .*predicted"; do
    grep -q "$line" "$RUN"/*.log || fail "no statistics in the logs: $line"
done

say "next start"
forget_logs
cp "$file" "$WORK/kept"
up
log_has "calibration of an earlier start is used" || fail "it was measured again"
cmp -s "$file" "$WORK/kept" || fail "the file has changed"
"$MOED" restart worker >/dev/null
down
"$MOED" inspect --calibration "$MODEL" | grep -q "^machine" || fail "not found by the model's file"

say "a broken file"
forget_logs
head -c 100 "$WORK/kept" > "$file"
up
log_has "calibration ignored" && log_has "calibrated in" || fail "a broken file was taken"
grep -q '^end$' "$file" || fail "it was not replaced"
down

say "measured anew"
forget_logs
sed 's/^link-segment .*/link-segment 0.5/' "$WORK/kept" > "$file"
up
[ "$(value link_segment_s)" = 0.5 ] || fail "what is kept is not what is used"
down
forget_logs
sed 's/^link-segment .*/link-segment 0/' "$WORK/kept" > "$file" # as where everything was resident
up
log_has "calibrated in" && [ "$(value link_segment_s)" != 0 ] || fail "a calibration without the link was taken where there is something to load"
down
forget_logs
sed 's/^link-segment .*/link-segment 0.5/' "$WORK/kept" > "$file"
up --calibrate
log_has "calibrated in" || fail "--calibrate does not measure"
[ "$(value link_segment_s)" != 0.5 ] || fail "--calibrate keeps what it is to replace"
# a worker that is started again takes what the first one has just measured, and what that has learnt since
log_has "learnt is used" && fail "a first worker has something to learn from"
"$MOED" run -n 20 --ignore-end --temp 0 "Once upon a time" >/dev/null || fail "no answer"
learnt() { "$MOED" metrics worker | sed -n 's/^moed_worker_cost_correction{side="device"} //p'; }
before=$(learnt)
[ "$before" != 1 ] || fail "nothing was learnt"
kill -KILL "$(pid_of worker)"
wait_until 10 log_has "calibration of an earlier start is used" || fail "a restarted worker measures again"
wait_until 10 log_has "what the worker before this one learnt is used" || fail "what was learnt is lost"
wait_until 10 "$MOED" metrics worker
[ "$(learnt)" = "$before" ] || fail "learnt $before, then $(learnt)"
down

say "host"
"$MOED" up "$MODEL" >/dev/null 2>&1 || fail "up on the host"
"$MOED" run -n 4 --ignore-end --temp 0 "Once upon a time" >/dev/null || fail "no answer on the host"
"$MOED" ps | grep -q "cache:" && fail "a cache in ps on the host"
"$MOED" ps --json | grep -q '"cache"' && fail "a cache in ps --json on the host"
"$MOED" metrics > "$WORK/metrics"
for name in $names; do ! grep -q "$name" "$WORK/metrics" || fail "$name on the host"; done
"$MOED" inspect --calibration 2>&1 | grep -q "no memory of its own" || fail "a calibration of the host"
down
say ok
