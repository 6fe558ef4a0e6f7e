#!/bin/bash
# The place where an expert is computed does not change the results. Tokens and logits are equal, to the bit, on the host and on an
# emulated device: for every policy, predictor and budget, for one request and for several, and while the policy changes.
#   [MOED_TEST_SHORT=1|2] expert_cache.sh MOED MODEL...     1: fewer deployments, and of several models each checks a third of the
#   policies; 2: also fewer tokens, for very slow builds
# A model whose experts can be cut has three deployments: device memory for 40 % of the experts, for one expert and for one segment;
# experts whole, in a few segments and in as many as possible. With SHORT, or with a model that is large or cannot be cut, the test
# runs one of these deployments, or one with device memory for all experts.
#
# The options of a deployment (memory, link, speed, call, cut) and its requests (policy, requests at once, tokens) vary
# independently. Over three models each value of one meets each value of another. The exception: memory for one segment never meets
# a whole expert.
MOED=$1
shift
. "$(dirname "$0")/../deployment.sh"

prompts=("Once upon a time" "$(seq -s ' ' 1 60)" "int main(void) {" "0 1 2 3")
for i in {4..15}; do prompts+=("Request $i: $(seq -s ' ' 1 "$i")"); done
LOGITS=$(seq -s , 10 9 200)
BATCHES=(1 4 16)

# ask TOKENS FIRST COUNT FILE: sends COUNT prompts at once, beginning with FIRST; writes one line of tokens each to $WORK/FILE.
ask() {
    local pids=() i
    for ((i = 0; i < $3; i++)); do
        "$MOED" run -n "$1" --ignore-end --temp 0 --json "${prompts[$((($2 + i) % 16))]}" >"$WORK/$4-$i" & pids+=($!)
    done
    for i in "${!pids[@]}"; do wait "${pids[$i]}" || fail "request $i of $3"; done
    for ((i = 0; i < $3; i++)); do sed -n 's/.*"tokens": *\[\([^]]*\)\].*/\1/p' "$WORK/$4-$i"; done >"$WORK/$4"
    [ "$(wc -l <"$WORK/$4")" -eq "$3" ] || fail "an answer without tokens"
}
# right FILE FIRST TOKENS [WANT]: each answer in FILE is the beginning of the host's answer.
right() {
    awk -v first="$2" -v n="$3" -F ', ' 'NR == FNR { want[NR - 1] = $0 ", "; next }
        NF != n || index(want[(first + FNR - 1) % 16], $0 ", ") != 1 { bad = 1 } END { exit bad }' "$WORK/${4:-want}-$cut" "$WORK/$1"
}
# check WHAT: sends the next number of requests with the next number of tokens. Each `deploy` begins at another place of the two
# lists, so that each policy meets several numbers.
check() {
    local n=${LENGTHS[$(((choice / 3 + row) % 3))]} at_once=${BATCHES[$(((choice + row) % 3))]} first=$((choice * 5 % 16))
    choice=$((choice + 1))
    ask "$n" $first "$at_once" got
    right got $first "$n" || fail "$device, $1, $at_once at once, $n tokens: other tokens than on the host"
}
check_logits() { # check_logits WHAT
    local how
    for how in "" --stepwise; do
        "$MOED" logits $how --tokens "$LOGITS" -o "$WORK/got-logits" || fail "logits $how"
        cmp -s "$WORK/got-logits" "$WORK/logits$how-$cut" || fail "$device, $1: other logits $how than on the host"
    done
}
segments() { metric worker "moed_worker_segments_total{where=\"$1\"}"; }

refused() { # refused LINE ARGUMENT...: `moed policy ARGUMENT...` fails and prints LINE
    local line=$1
    shift
    "$MOED" policy "$@" >/dev/null 2>"$WORK/refused" && fail "moed accepts policy $*"
    grep -qF "$line" "$WORK/refused" || { cat "$WORK/refused" >&2; fail "policy $*: the message lacks the reason"; }
}
check_refusals() {
    refused "cache value does not take budget uniform; those that do are none, static, lru, lfu, workload, lru-prefetch, lcp, score, workload-guarded" --budget uniform
    refused "cache lfu does not take budget global; those that do are none, static, lru, layerwise, map-frequency, value, arc, lrfu, w-tinylfu, least-stale" lfu --budget global
    refused "there are load-all, threshold, qstar, greedy, layerwise, presched, score-queue, balance, qstar-stream, greedy-unbound" --assign chance
    refused "there are none, static, lru, lfu, workload, workload-guarded, layerwise, lru-prefetch, lcp, score, map-frequency, value, arc, lrfu, w-tinylfu, least-stale, prompt-frequency, streamed, learned, lru-allocated, shallow" --cache fifo
    refused "cache 'belady' is not known" --cache belady
    refused "there are none, next-gate, gate-scores, residual, frequency, expert-map, activation-matrix, mlp, llapor, mixture, correlation" --predictor oracle
    refused "there are probable, chunked, rotating, urgent, cleared, loaded, value, selective" --prefetch random
    refused "there are global, uniform, configured" --budget fair
    [ "$(policy_field cache)" = '"value"' ] || fail "a refused policy changed something"
}

# `moed up` sets the policy. memd keeps it for a worker that starts later.
start_deployment "$1" --device emu:vram=50%,link=1G --cache lru --budget uniform --predictor frequency --prefetch urgent
"$MOED" restart worker >/dev/null || fail "restart"
chosen=$("$MOED" policy --json)
for part in '"cache": "lru"' '"budget": "uniform"' '"predictor": "frequency"' '"prefetcher": "urgent"'; do
    case $chosen in *"$part"*) ;; *) fail "$part is not in $chosen" ;; esac
done
"$MOED" run -n 40 --ignore-end --temp 0 "Once upon a time" >/dev/null
[ "$(metric worker 'moed_worker_predict_shown_total')" -gt 0 ] || fail "the worker passed no token to the predictor"
[ -z "$(metric worker 'moed_worker_predictions_total{predictor="residual"}')" ] || fail "an unused predictor has metrics"

# The metrics name the policy in force, and the bytes that memd copied under each policy.
in_force() { # in_force POLICY ASSIGNER CACHE BUDGET PREDICTOR PREFETCHER
    [ "$(metric memd "moed_memd_policy_info{policy=\"$1\",assign=\"$2\",cache=\"$3\",budget=\"$4\",predictor=\"$5\",prefetch=\"$6\"}")" = 1 ]
}
copied() { metric memd "moed_memd_policy_link_bytes_total{policy=\"$1\"}"; }
in_force moed balance lru uniform frequency urgent || fail "the policy in force is not among the metrics"
# The assigner balance loads only where that pays, which depends on the load of the machine: load-all always loads.
"$MOED" policy --assign load-all >/dev/null || fail "policy --assign"
"$MOED" run -n 20 --ignore-end --temp 0 "Once upon a time" >/dev/null
"$MOED" policy ondemand >/dev/null || fail "policy ondemand"
in_force ondemand load-all none global none probable || fail "another policy is not among the metrics"
before=$(copied moed)
"$MOED" run -n 20 --ignore-end --temp 0 "Once upon a time" >/dev/null
[ "$before" -gt 0 ] && [ "$(copied ondemand)" -gt 0 ] || fail "no bytes under moed, or under ondemand"
[ "$(copied moed)" = "$before" ] || fail "bytes under a policy that is not in force"
[ $((before + $(copied ondemand))) = "$(metric memd moed_memd_link_bytes_total)" ] || fail "the bytes of the two policies are not all bytes"
# Without trained predictors moed replaces the defaults: promoe's with next-gate; prescope's with expert-map, because the next gate
# predicts too late for a plan that covers several layers.
"$MOED" policy promoe >/dev/null && in_force promoe load-all lru-prefetch uniform next-gate chunked || fail "promoe, not trained"
"$MOED" policy prescope >/dev/null && in_force prescope presched static global expert-map rotating || fail "prescope, not trained"
grep -q "policy prescope: .*has to be trained.*; expert-map takes its place" "$RUN/memd.log" || fail "no message names the predictor that replaces llapor"
"$MOED" policy moed >/dev/null
# The worker measures whether copies and the device save time: blocks of steps take turns, with all copies, without prefetch, without
# any, and on the CPU alone where that may be fast enough. The result depends on the machine, but not the answer.
answer=$("$MOED" run -n 450 --ignore-end --temp 0 "Once upon a time")
case $(policy_field device_computes),$(policy_field loading),$(policy_field prefetch) in
false,*) "$MOED" policy | grep -q "the device makes a step .* longer" || fail "policy does not say why the device computes nothing" ;;
*,true,true) "$MOED" policy | grep -q "prefetch on: it saves" || fail "policy does not say that prefetch is on" ;;
*,true,false) "$MOED" policy | grep -q "prefetch off: it makes a step .* longer" || fail "policy does not say why prefetch is off" ;;
*,false,*) "$MOED" policy | grep -q "loads and prefetch off: they make a step .* longer" || fail "policy does not say why copies are off" ;;
*) fail "the worker did not try copies" ;;
esac
[ "$(metric worker moed_worker_steps_without_prefetch_total)" -ge 64 ] || fail "no steps without prefetch"
[ "$(metric worker moed_worker_steps_without_loads_total)" -ge 8 ] || fail "no steps without loads"
"$MOED" policy ondemand >/dev/null
[ "$("$MOED" run -n 450 --ignore-end --temp 0 "Once upon a time")" = "$answer" ] || fail "the answer depends on what the device is used for"
"$MOED" policy moed >/dev/null
check_refusals
refused "moed train" --predictor mlp
"$MOED" down >/dev/null 2>&1
"$MOED" up "$1" --device emu:vram=50%,link=1G --budget uniform >/dev/null 2>"$WORK/refused" && fail "up accepts a budget that the cache does not take"
grep -qF "cache value does not take budget uniform" "$WORK/refused" || fail "up: the message lacks the reason"

# shape: prints, from `moed map`, the most segments of an expert, the bytes of the largest expert and segment, and the layers.
shape() {
    "$MOED" map | sed -n 's/^ *[0-9]* *\([0-9]*\) .*\.experts (\([0-9]*\) experts of \([0-9]*\) segment.*/\1 \2 \3/p' | awk '
        { e = $1 / $2; if (e > expert) expert = e; if ($3 > n) n = $3; if (e / $3 > segment) segment = e / $3 }
        END { print n, expert, int((segment + 63) / 64) * 64, NR }'
}
# prepare: finds the most segments that the model's experts can be cut into, and trains mlp and llapor into $WORK/predictors.
prepare() {
    start_deployment "$model" --segment-bytes 1
    read -r finest expert_bytes _ layers < <(shape)
    predictors=none trained=""
    if [ "$layers" -gt 2 ]; then # fewer layers leave nothing to predict two layers ahead
        "$MOED" profile "$model" --text "$0" --max-tokens 1500 --hidden all -o "$WORK/trace" >/dev/null 2>&1 || fail profile
        "$MOED" train "$WORK/trace" --epochs 1 --force -o "$WORK/predictors" >/dev/null 2>&1 || fail train
        predictors=$WORK/predictors trained="predictor=mlp predictor=llapor"
    fi
    "$MOED" down >/dev/null 2>&1
}
# reference CUT: computes the expected answers on the host, with experts cut into segments of cuts[CUT] bytes.
reference() {
    cut=$1
    start_deployment "$model" --reproducible --parallel 16 --ctx 2048 --segment-bytes "${cuts[$cut]}"
    read -r "segments_per_expert[$cut]" _ "slot_bytes[$cut]" _ < <(shape)
    ask "${LENGTHS[2]}" 0 16 "want-$cut"
    ask "$LONG" 0 4 "long-$cut"
    "$MOED" logits --tokens "$LOGITS" -o "$WORK/logits-$cut" && "$MOED" logits --stepwise --tokens "$LOGITS" -o "$WORK/logits--stepwise-$cut" || fail logits
    "$MOED" down >/dev/null 2>&1
}

# A row is a size of device memory. Link and cut rotate with row and model, speed and call with row and link.
cut_of() { # cut_of ROW MODEL: prints the index into cuts; row 3, memory for one segment, needs experts of several segments
    local c=$((($1 + ($1 + $2) % 3) % ${#cuts[@]}))
    [ "$1" != 3 ] || [ $c != 0 ] || c=$((${#cuts[@]} - 1))
    echo $c
}
deploy() { # deploy ROW MODEL
    local j=$((($1 + $2) % 3)) links=(4G 1G 200M) speeds=("" ,speed=0.5) calls=("" ,call=200us) vram
    [ $large = no ] || links=(20G 8G 2G)
    row=$(($1 + $2)) cut=$(cut_of "$1" "$2")
    case $1 in
    0) vram=100% ;;
    1) vram=40% ;;
    2) vram=$((slot_bytes[cut] * segments_per_expert[cut])) ;;
    3) vram=${slot_bytes[cut]} ;;
    esac
    device=emu:vram=$vram,link=${links[$j]}${speeds[$((($1 + j) % 2))]}${calls[$((($1 / 2 + j) % 2))]}
    "$MOED" up "$model" --reproducible --parallel 16 --ctx 2048 --device "$device" --policy moed --segment-bytes "${cuts[$cut]}" --predictors "$predictors" \
        >/dev/null 2>"$WORK/up" || { cat "$WORK/up" >&2; fail "$device"; }
    device="$device, ${segments_per_expert[$cut]} segments an expert"
    case $1 in
    2) [ "$(policy_field slots)" = "${segments_per_expert[$cut]}" ] || fail "$device: slots for more or less than one expert" ;;
    3) [ "$(policy_field slots)" = 1 ] || fail "$device: more or less than one slot" ;;
    esac
}

on_device() { echo $(($(segments resident) + $(segments loaded))); }
# All experts have the same number of segments. If the device computed a number of segments that is no multiple of it, the device
# computed a part of an expert, and the CPU computed the rest. If the device has one slot, and a call to the device takes longer than
# the CPU needs, moed may split no expert at all.
check_split() {
    local device_segments=0 try policies=("lru --assign threshold" moed qstar dali)
    for ((try = 0; try < 12 && device_segments % segments_per_expert[cut] == 0; try++)); do
        # shellcheck disable=SC2086 # words
        "$MOED" policy ${policies[$((try % 4))]} >/dev/null || fail "policy ${policies[$((try % 4))]}"
        device_segments=$(on_device)
        ask "${LENGTHS[1]}" $try 1 got
        right got $try "${LENGTHS[1]}" || fail "$device, split experts: other tokens than on the host"
        device_segments=$(($(on_device) - device_segments))
    done
    could_split=$((could_split + 1))
    if [ $((device_segments % segments_per_expert[cut])) -eq 0 ]; then
        say "    no expert was split between device and CPU"
    else
        did_split=$((did_split + 1))
    fi
    check_logits "split experts"
}

# set_part KEY NAME POLICY OPTION...: sets a policy and checks that KEY is NAME then
set_part() {
    local key=$1 name=$2
    shift 2
    "$MOED" policy "$@" >/dev/null || fail "policy $*"
    [ "$(policy_field "$key")" = "\"$name\"" ] || fail "policy $*: $key is not $name"
}
# omitted: whether another model checks the next policy (MOED_TEST_SHORT)
omitted() {
    turn=$((turn + 1))
    [ $thirds = yes ] && [ $(((turn + number) % 3)) != 0 ]
}
# All policies (of six only three), and every second part of a policy: the next deployment checks the parts that this one omits.
check_policies() {
    choice=0 turn=0
    local newer="llama.cpp ktransformers moe-lightning flashmoe"
    [ $((row % 2)) = 0 ] || newer="adapmoe fate klotski"
    for policy in moed ondemand static lru lfu mixtral-offloading eam threshold score qstar layerwise dali prescope moepic promoe finemoe specmd $newer; do
        omitted && continue
        "$MOED" policy "$policy" >/dev/null || fail "policy $policy"
        check "$policy"
        case $policy in moed | lru | qstar) check_logits "$policy" ;; esac
    done
    local kind name
    for part in predictor={none,next-gate,gate-scores,residual,frequency,expert-map,activation-matrix,mixture} $trained budget={global,uniform} \
        cache={lcp,workload-guarded} prefetcher={chunked,cleared,loaded,rotating,urgent,value}; do
        kind=${part%=*} name=${part#*=}
        omitted && continue
        if [ $thirds = no ] && [ $(((choice + row) % 2)) = 1 ]; then
            choice=$((choice + 1))
            continue
        fi
        case $kind in
        predictor) set_part "$kind" "$name" moed --predictor "$name" ;;
        budget) set_part "$kind" "$name" qstar --budget "$name" --predictor residual ;;
        cache) set_part "$kind" "$name" moed --cache "$name" ;;
        prefetcher) set_part "$kind" "$name" moed --prefetch "$name" ;;
        esac
        check "$part"
    done
}

# answer_on PROMPT: sends one prompt again and again until $WORK/stop exists; every answer is whole and right.
answer_on() {
    local n=0
    until [ -e "$WORK/stop" ]; do
        ask "$LONG" "$1" 1 "on-$1"
        right "on-$1" "$1" "$LONG" long || fail "$device: other tokens while the policy changes"
        n=$((n + 1))
    done
    echo $n >"$WORK/answered-$1"
}
# progress: prints the worker's RUNNING requests, ENDED requests and decode STEPS
progress() {
    "$MOED" metrics worker | awk '$1 == "moed_worker_requests_running" { r = $2 } /^moed_worker_requests_total/ { e += $2 }
        $1 == "moed_worker_decode_steps_total" { s = $2 } END { print r + 0, e + 0, s + 0 }'
}
# A request ran before and after the change if fewer requests ended than were running, and the worker made steps.
change_while_answering() {
    local running ended steps ended_then steps_then _
    for ((try = 0; try < 250; try++)); do # with sanitizers clients start slowly, and answers are short
        read -r running ended steps < <(progress)
        # shellcheck disable=SC2086 # words
        "$MOED" policy $1 >/dev/null || fail "policy $1"
        read -r _ ended_then steps_then < <(progress)
        [ $((ended_then - ended)) -ge "$running" ] || [ "$steps_then" -le "$steps" ] || return 0
    done
    : >"$WORK/stop"
    fail "$device: no request ran while the policy changed to $1"
}
check_changes() {
    local pids=() i before
    rm -f "$WORK/stop"
    for i in 0 1 2 3; do answer_on $i & pids+=($!); done
    for change in lru "lru --budget global --predictor next-gate" "dali --predictor none" "--predictor frequency" \
        "--cache lru --budget uniform" ondemand promoe ${trained:+"moed --predictor llapor"} moed "--predictor residual"; do
        change_while_answering "$change"
        changes=$((changes + 1))
    done
    : >"$WORK/stop"
    for i in "${pids[@]}"; do wait "$i" || fail "$device: answers while the policy changes"; done
}

thirds=no
[ -z "${MOED_TEST_SHORT:-}" ] || [ $# -lt 3 ] || thirds=yes
at_once=0 # layers computed in one call: the costs decide whether that is faster, and for some models it never is
could_split=0 did_split=0 number=0 changes=0 trained_predictions=0 trained_models=0
predicted() { # predicted PREDICTOR: prints its number of predictions, 0 if the worker did not use it
    local n
    n=$(metric worker "moed_worker_predictions_total{predictor=\"$1\"}")
    echo "${n:-0}"
}
for model in "$@"; do
    say "$(basename "$model")"
    large=no LONG=1500 LENGTHS=(6 16 48) cuts=(1) segments_per_expert=() slot_bytes=()
    [ "$(stat -c %s "$model")" -lt 20000000 ] || large=yes LONG=120 LENGTHS=(4 8 16)
    [ "${MOED_TEST_SHORT:-}" != 2 ] || LONG=$((LONG < 300 ? LONG : 300)) LENGTHS=(3 5 8) BATCHES=(1 2 4)
    prepare
    # the cut of the experts is part of the definition of the sum, so it is the same on every device
    [ "$finest" = 1 ] || cuts=($((expert_bytes * 2)) $((expert_bytes / 3)) 1)
    rows=($((number % 3 + (finest > 1))))
    [ "$finest" = 1 ] || [ -n "${MOED_TEST_SHORT:-}" ] || [ $large = yes ] || rows=(1 2 3)
    for i in "${rows[@]}"; do
        cut=$(cut_of "$i" $number)
        [ -n "${segments_per_expert[$cut]:-}" ] || reference "$cut"
        deploy "$i" $number
        say "  $device"
        [ "${segments_per_expert[$cut]}" = 1 ] || check_split
        check_policies
        check_changes
        [ "$(on_device)" -gt 0 ] || fail "$device: the device computed nothing"
        case $device in *call=*) at_once=$((at_once + $(metric worker moed_worker_layers_at_once_total))) ;; esac
        [ -z "$trained" ] || [ "$i" = 0 ] || trained_models=$((trained_models + 1)) # row 0: all experts are resident, so the worker predicts nothing
        trained_predictions=$((trained_predictions + $(predicted mlp) + $(predicted llapor)))
        slots_add_up || fail "$device: slots do not add up"
        "$MOED" policy | sed -n 's/^computed */    /p'
        "$MOED" down >/dev/null 2>&1
    done
    number=$((number + 1))
done
[ $number = $# ] || fail "only $number models of $#"
say "$changes changes of policy while requests ran; $at_once layers computed in one call after their load; $trained_predictions \
experts predicted by trained networks"
[ $((2 * did_split)) -ge $could_split ] || fail "only $did_split of $could_split deployments with experts of several segments split an expert between device and CPU"
[ $trained_models = 0 ] || [ "$trained_predictions" -gt 0 ] || fail "no trained network predicted anything"
[ $# -lt 5 ] || [ "$at_once" -gt 0 ] || fail "of $# models no layer was computed in one call"
