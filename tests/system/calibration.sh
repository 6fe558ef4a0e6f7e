#!/bin/bash
# The worker measures the costs of experts once for each machine and model, stores them in a file and reads the file at the next
# start. `moed inspect` shows them. The worker measures again if the file is broken.
# The test also reads the figures of a running expert cache. On the host device, moed omits the figures that the host cannot measure.
#   calibration.sh MOED MODEL
MOED=$1 MODEL=$2
. "$(dirname "$0")/../deployment.sh"

device=emu:vram=40%,link=500M
up() { start_deployment "$MODEL" --device "$device" "$@"; }
down() { "$MOED" down >/dev/null 2>&1; }
# value KEY: prints the value of KEY in the JSON of the only calibration
value() { "$MOED" inspect --calibration --json | tr -d '[]' | tr ',{' '\n' | awk -F': ' -v k="\"$1\"" '{ gsub(/^ +/, "", $1) } $1 == k { print $2; exit }'; }
log_has() { grep -q "$1" "$RUN/worker.log"; }
forget_logs() { rm -f "$RUN"/*.log; }

say "first start"
"$MOED" inspect --calibration >/dev/null 2>&1 && fail "inspect shows a calibration before the first start"
up
log_has "calibrated in" || fail "the worker did not calibrate"
file=$(ls "$XDG_CACHE_HOME"/moed/*.calibration) || fail "the worker stored no calibration"
[ "$(printf '%s\n' "$file" | wc -l)" -eq 1 ] || fail "several files: $file"
# the emulated link: 500 MB/s and 10 us a copy, under any load of the machine
bytes=$(value segment_bytes) took=$(value link_segment_s)
awk -v b="$bytes" -v t="$took" 'BEGIN { want = b / 500e6 + 10e-6; exit !(t > 0.85 * want && t < 1.3 * want) }' ||
    fail "a segment of $bytes bytes in $took s over a link of 500 MB/s"
"$MOED" inspect --calibration | grep -q "ms a segment" || fail "no table"
"$MOED" inspect --calibration | grep -q "layers since took" || fail "inspect does not show the corrections of the running deployment"

say "figures of the cache"
"$MOED" ps | grep -q "cache: " || fail "no line in ps"
"$MOED" run -n 20 --ignore-end --temp 0 "Once upon a time" >/dev/null || fail "no answer"
"$MOED" ps --json > "$WORK/ps.json" # at once: the figures are those of the last seconds
"$MOED" ps | tr -s '\n ' ' ' > "$WORK/ps" # one line: ps breaks its lines
"$MOED" policy | grep -q '^layers  *[0-9.]* ms each' || fail "policy has no line of layers: $("$MOED" policy)"
"$MOED" policy | grep -A 1 '^  mixtral-offloading ' | tail -n 1 | grep -qE '^ {22}[^ ]' || fail "a long policy goes on elsewhere: $("$MOED" policy)"
{ "$MOED" ps; "$MOED" policy; "$MOED" inspect --tensors "$MODEL"; "$MOED" inspect --calibration; } |
    awk 'length > 80 && !/^file|^model/ { print; bad = 1 } END { exit bad || NR < 60 }' || fail "lines of more than 80 columns"
grep -q "cache: hit rate [0-9.]* %, [0-9.]* % filled, link [0-9.]* GB/s, busy [0-9.]* %" "$WORK/ps" ||
    { cat "$WORK/ps" >&2; fail "the line in ps"; }
grep -q '"hit_rate": 0\.[0-9]*' "$WORK/ps.json" || fail "no hit rate in ps --json"
grep -q "layers: [0-9.]* ms each, predicted [0-9.]* ms, planned in [0-9.]* ms, device busy [0-9.]* %, CPU busy [0-9.]* %" "$WORK/ps" ||
    { cat "$WORK/ps" >&2; fail "the line of layers in ps"; }
for name in device_busy_share cpu_busy_share layer_s layer_predicted_s plan_s; do
    grep -q "\"$name\": 0\.[0-9]*" "$WORK/ps.json" || fail "no $name in ps --json"
done
for process in memd cpuexec worker; do "$MOED" metrics $process; done > "$WORK/metrics"
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
    fail "the metrics contradict each other: $(grep 'layer\|busy\|predicted' "$WORK/metrics" | grep -v '^#')"
# the link's metrics omit the copies of the calibration; a device without dense weights and KV cache has no metrics for them
copied() { sed -n "s/^moed_memd_copied_bytes_total{why=\"$1\"} //p" "$WORK/metrics"; }
[ "$(copied calibration)" -gt 0 ] || fail "nothing was copied to calibrate"
link_adds_up() { # copies may be under way after the answer
    "$MOED" metrics memd > "$WORK/memd" && sed -i '/^moed_memd/d' "$WORK/metrics" && cat "$WORK/memd" >> "$WORK/metrics"
    [ "$(number moed_memd_link_bytes_total)" = $(($(copied demanded) + $(copied prefetched))) ]
}
wait_until 10 link_adds_up ||
    fail "the link's bytes are not the sum of demanded and prefetched bytes: $(grep 'memd_.*bytes' "$WORK/metrics" | grep -v '^#')"
grep -q 'moed_memd_device_bytes{use="experts"}' "$WORK/metrics" || fail "no bytes of experts on the device"
! grep -q 'moed_memd_device_bytes{use="[dks]\|moed_worker_segments_awaited' "$WORK/metrics" || fail "metrics of memory that the device does not hold"
slots=$(awk '/^moed_memd_slots/ { n += $2 } END { print n }' "$WORK/metrics")
[ "$slots" = "$(policy_field slots)" ] || fail "the slots in the metrics do not add up: $slots"
# memd resets a policy's figures when the user chooses the policy
"$MOED" policy ondemand --json | grep -q '"segments_resident": 0, "segments_loaded": 0, "segments_cpu": 0' || fail "figures of the previous policy"
"$MOED" run -n 4 --ignore-end --temp 0 "Once upon a time" >/dev/null || fail "no answer"
[ "$(policy_field segments_loaded)" -gt 0 ] && [ "$(policy_field segments_cpu)" = 0 ] || fail "ondemand: $("$MOED" policy --json)"
[ "$(metric memd moed_memd_asked_bytes_total)" -gt 0 ] && [ "$(metric memd moed_memd_used_bytes_total)" -gt 0 ] || fail "no bytes requested or used"
down
for line in "memd.*cache, last [0-9]* s: .*MB copied.*link busy" "worker.*experts, last .*device busy" "worker.*layers, last .*predicted"; do
    grep -q "$line" "$RUN"/*.log || fail "no statistics in the logs: $line"
done

say "next start"
forget_logs
cp "$file" "$WORK/kept"
up
log_has "calibration of an earlier start is used" || fail "the worker calibrated again"
cmp -s "$file" "$WORK/kept" || fail "the calibration file has changed"
"$MOED" restart worker >/dev/null
down
"$MOED" inspect --calibration "$MODEL" | grep -q "^machine" || fail "inspect does not find the calibration by the model file"

say "a broken file"
forget_logs
head -c 100 "$WORK/kept" > "$file"
up
log_has "calibration ignored" && log_has "calibrated in" || fail "the worker used a broken file"
grep -q '^end$' "$file" || fail "the worker did not replace the broken file"
down

say "a file of another version"
forget_logs
sed 's/^moed calibration .*/moed calibration 1/' "$WORK/kept" > "$file"
up
log_has "calibrating again: .*of another version of moed" && log_has "calibrated in" || fail "the worker does not name the version"
[ "$(grep -c "of another version" "$RUN/worker.log")" = 1 ] || fail "the worker names the version more than once"
down

say "calibrating again"
forget_logs
sed 's/^link-segment .*/link-segment 0.5/' "$WORK/kept" > "$file"
up
[ "$(value link_segment_s)" = 0.5 ] || fail "the worker does not use the stored calibration"
down
forget_logs
sed 's/^link-segment .*/link-segment 0/' "$WORK/kept" > "$file" # as in a deployment where all experts are resident
up
log_has "calibrated in" && [ "$(value link_segment_s)" != 0 ] || fail "the worker has segments to load but used a calibration without the link"
down
forget_logs
sed 's/^link-segment .*/link-segment 0.5/' "$WORK/kept" > "$file"
up --calibrate
log_has "calibrated in" || fail "the worker does not measure with --calibrate"
[ "$(value link_segment_s)" != 0.5 ] || fail "--calibrate keeps the stored calibration"
# a restarted worker uses the calibration of the first one and its cost corrections
log_has "using the corrections of" && fail "the first worker uses corrections of another worker"
"$MOED" run -n 20 --ignore-end --temp 0 "Once upon a time" >/dev/null || fail "no answer"
correction() { "$MOED" metrics worker | sed -n 's/^moed_worker_cost_correction{side="device"} //p'; }
before=$(correction)
[ "$before" != 1 ] || fail "the worker did not correct the costs"
kill -KILL "$(pid_of worker)"
wait_until 10 log_has "calibration of an earlier start is used" || fail "the restarted worker calibrates again"
wait_until 10 log_has "using the corrections of the worker before this one" || fail "the corrections are lost"
wait_until 10 "$MOED" metrics worker
awk -v worker="$(policy_field worker_since_s)" -v memd="$(policy_field since_s)" 'BEGIN { exit !(worker > 0 && worker < memd - 0.3) }' ||
    fail "policy does not say that the new worker's counts cover less time: $("$MOED" policy --json)"
[ "$(correction)" = "$before" ] || fail "the correction was $before, and is $(correction) after the restart"
down

# A device that is too slow to compute experts: the plan gives its resident segments to the CPU, and they count as found. Without
# cpuexec the worker computes them, and they count as well.
say "a slow device"
forget_logs
device=emu:vram=100%,link=4G,speed=0.2,call=1ms
up --speculate off
long_answer() { "$MOED" run -n 8 --ignore-end --temp 0 "Once upon a time" >/dev/null || fail "no answer"; }
counts() { "$MOED" metrics worker | awk '/^moed_worker_segments_total/ { n += $2 } /^moed_worker_segments_total.*cpu/ { cpu = $2 }
    /^moed_worker_segments_found_total/ { found = $2 } END { print n, found, cpu }'; }
computed() { read -r n found cpu < <(counts); long_answer; read -r n2 found2 cpu2 < <(counts); }
all_found() { [ $((found2 - found)) = $((n2 - n)) ] && [ "$cpu2" -gt "$cpu" ]; }
again_until all_found computed || fail "the hit rate counts segments as missed that are resident: $n $found $cpu, then $n2 $found2 $cpu2"
usual=$((n2 - n))
stop_process "$(pid_of cpuexec)"
computed
kill -CONT "$(pid_of cpuexec)"
[ "$(metric worker moed_worker_jobs_reclaimed_total)" -gt 0 ] || fail "the worker took no job"
[ $((n2 - n)) = $usual ] || fail "without cpuexec $((n2 - n)) segments were counted, else $usual"
down

say "host"
start_deployment "$MODEL"
"$MOED" run -n 4 --ignore-end --temp 0 "Once upon a time" >/dev/null || fail "no answer on the host"
"$MOED" ps | grep -q "cache:" && fail "a cache in ps on the host"
"$MOED" ps --json | grep -q '"cache"' && fail "a cache in ps --json on the host"
"$MOED" metrics > "$WORK/metrics"
for name in $names; do ! grep -q "$name" "$WORK/metrics" || fail "$name on the host"; done
"$MOED" inspect --calibration 2>&1 | grep -q "no memory of its own" || fail "a calibration of the host"
down
say ok
