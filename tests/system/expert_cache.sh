#!/bin/bash
# Where an expert was computed never shows: the same tokens and logits, to the bit, on the host and on an emulated device, for every
# policy, predictor and budget, alone and among others, and while the policy is changed.
#   [MOED_TEST_SHORT=1|2] expert_cache.sh MOED MODEL...     each model by itself; 2: few tokens too, for what is very slow
# A model whose experts can be cut has three deployments: memory for 40 % of them, for one expert and for one segment; experts whole, in a
# few segments and in as many as there can be. With SHORT, or a model that is large or cannot be cut, it has one of these, or
# one with memory for all.
#
# What a deployment is given (memory, link, speed, call, cut), and what is asked of it (policy, requests at once, tokens), vary
# apart: over three models each value of one meets each value of another, but memory for one segment no expert that is whole.
MOED=$1
shift
. "$(dirname "$0")/../deployment.sh"

prompts=("Once upon a time" "$(seq -s ' ' 1 60)" "int main(void) {" "0 1 2 3")
for i in {4..15}; do prompts+=("Request $i: $(seq -s ' ' 1 "$i")"); done
LOGITS=$(seq -s , 10 9 200)
BATCHES=(1 4 16)

# ask TOKENS FIRST COUNT FILE: so many of the prompts at once, from the FIRST; one line of tokens each into $WORK/FILE.
ask() {
    local pids=() i
    for ((i = 0; i < $3; i++)); do
        "$MOED" run -n "$1" --ignore-end --temp 0 --json "${prompts[$((($2 + i) % 16))]}" >"$WORK/$4-$i" & pids+=($!)
    done
    for i in "${!pids[@]}"; do wait "${pids[$i]}" || fail "request $i of $3"; done
    for ((i = 0; i < $3; i++)); do sed -n 's/.*"tokens": *\[\([^]]*\)\].*/\1/p' "$WORK/$4-$i"; done >"$WORK/$4"
    [ "$(wc -l <"$WORK/$4")" -eq "$3" ] || fail "an answer without tokens"
}
# right FILE FIRST TOKENS [WANT]: these answers are the beginnings of the host's.
right() {
    awk -v first="$2" -v n="$3" -F ', ' 'NR == FNR { want[NR - 1] = $0 ", "; next }
        NF != n || index(want[(first + FNR - 1) % 16], $0 ", ") != 1 { bad = 1 } END { exit bad }' "$WORK/${4:-want}-$cut" "$WORK/$1"
}
# check WHAT: the next number of requests and tokens. Each `deploy` begins elsewhere, so that what stands at one place of the list is
# asked for with other ones.
check() {
    local n=${LENGTHS[$(((choice / 3 + row) % 3))]} at_once=${BATCHES[$(((choice + row) % 3))]} first=$((choice * 5 % 16))
    choice=$((choice + 1))
    ask "$n" $first "$at_once" got
    right got $first "$n" || fail "$device, $1, $at_once at once, $n tokens: others than on the host"
}
check_logits() { # check_logits WHAT
    local how
    for how in "" --stepwise; do
        "$MOED" logits $how --tokens "$LOGITS" -o "$WORK/got-logits" || fail "logits $how"
        cmp -s "$WORK/got-logits" "$WORK/logits$how-$cut" || fail "$device, $1: other logits $how than on the host"
    done
}
segments() { metric worker "moed_worker_segments_total{where=\"$1\"}"; }

refused() { # refused LINE ARGUMENT...: of `moed policy`
    local line=$1
    shift
    "$MOED" policy "$@" >/dev/null 2>"$WORK/refused" && fail "policy $* is taken"
    grep -qF "$line" "$WORK/refused" || { cat "$WORK/refused" >&2; fail "policy $*: not told why"; }
}
check_refusals() {
    refused "cache value does not take budget uniform; those that do are none, static, lru, lfu, workload, lru-ahead, lcp, score, workload-guarded" --budget uniform
    refused "cache lfu does not take budget global; those that do are none, static, lru, layerwise, map-frequency, value" lfu --budget global
    refused "there are load-all, threshold, qstar, greedy, layerwise, presched, score-queue, balance" --assign chance
    refused "there are none, static, lru, lfu, workload, workload-guarded, layerwise, lru-ahead, lcp, score, map-frequency, value" --cache fifo
    refused "cache 'belady' is not known" --cache belady
    refused "there are none, next-gate, gate-scores, residual, frequency, expert-map, activation-matrix, mlp, llapor, mixture" --predictor oracle
    refused "there are probable, chunked, rotating, urgent, cleared, loaded, value" --prefetch random
    refused "there are global, uniform, configured" --budget fair
    [ "$(policy_field cache)" = '"value"' ] || fail "a refused policy changed something"
}

# Chosen at the start, and kept by memd for a worker that starts later.
"$MOED" up "$1" --device emu:vram=50%,link=1G --cache lru --budget uniform --predictor frequency --prefetch urgent >/dev/null 2>&1 || fail "up with a predictor"
"$MOED" restart worker >/dev/null || fail "restart"
chosen=$("$MOED" policy --json)
for part in '"cache": "lru"' '"budget": "uniform"' '"predictor": "frequency"' '"prefetcher": "urgent"'; do
    case $chosen in *"$part"*) ;; *) fail "$part is not in $chosen" ;; esac
done
"$MOED" run -n 40 --ignore-end --temp 0 "Once upon a time" >/dev/null
[ "$(metric worker 'moed_worker_predict_shown_total')" -gt 0 ] || fail "nothing was shown to the predictor"
[ -z "$(metric worker 'moed_worker_predictions_total{predictor="residual"}')" ] || fail "a predictor that was not used has metrics"

# Prometheus is told which policy it is, and what was copied under each.
in_force() { # in_force POLICY ASSIGNER CACHE BUDGET PREDICTOR PREFETCHER
    [ "$(metric memd "moed_memd_policy_info{policy=\"$1\",assign=\"$2\",cache=\"$3\",budget=\"$4\",predictor=\"$5\",prefetch=\"$6\"}")" = 1 ]
}
copied() { metric memd "moed_memd_policy_link_bytes_total{policy=\"$1\"}"; }
in_force moed balance lru uniform frequency urgent || fail "the policy in force is not among the metrics"
"$MOED" policy ondemand >/dev/null || fail "policy ondemand"
in_force ondemand load-all none global none probable || fail "another policy is not among the metrics"
before=$(copied moed)
"$MOED" run -n 20 --ignore-end --temp 0 "Once upon a time" >/dev/null
[ "$before" -gt 0 ] && [ "$(copied ondemand)" -gt 0 ] || fail "no bytes under moed, or under ondemand"
[ "$(copied moed)" = "$before" ] || fail "bytes under a policy that is not in force"
[ $((before + $(copied ondemand))) = "$(metric memd moed_memd_link_bytes_total)" ] || fail "bytes under the two are not all"
# Nothing is trained here: the next gate's word comes too late for a plan that looks ahead.
"$MOED" policy promoe >/dev/null && in_force promoe load-all lru-ahead uniform next-gate chunked || fail "promoe, not trained"
"$MOED" policy prescope >/dev/null && in_force prescope presched static global expert-map rotating || fail "prescope, not trained"
grep -q "policy prescope: .*has to be trained.*; expert-map takes its place" "$RUN/memd.log" || fail "not said what takes llapor's place"
"$MOED" policy moed >/dev/null
# Whether copying ahead pays is tried: eight blocks of steps, with and without in turn. Which of them serves then hangs on the machine.
"$MOED" run -n 250 --ignore-end --temp 0 "Once upon a time" >/dev/null
case $(policy_field ahead) in
true) "$MOED" policy | grep -q "in use: copies ahead save" || fail "not said that copies ahead are in use" ;;
false) "$MOED" policy | grep -q "not in use: with copies ahead a step takes .* longer" || fail "not said why nothing is copied ahead" ;;
*) fail "copies ahead were not tried" ;;
esac
[ "$(metric worker moed_worker_steps_without_copies_ahead_total)" -ge 64 ] || fail "no steps without copies ahead"
check_refusals
refused "moed train" --predictor mlp
"$MOED" down >/dev/null 2>&1
"$MOED" up "$1" --device emu:vram=50%,link=1G --budget uniform >/dev/null 2>"$WORK/refused" && fail "up with a budget that the cache does not take"
grep -qF "cache value does not take budget uniform" "$WORK/refused" || fail "up: not told why"

# How the experts lie: of `moed map`. The most segments of an expert, the bytes of the largest expert and segment, layers.
shape() {
    "$MOED" map | sed -n 's/^ *[0-9]* *\([0-9]*\) .*\.experts (\([0-9]*\) experts of \([0-9]*\) segment.*/\1 \2 \3/p' | awk '
        { e = $1 / $2; if (e > expert) expert = e; if ($3 > n) n = $3; if (e / $3 > segment) segment = e / $3 }
        END { print n, expert, int((segment + 63) / 64) * 64, NR }'
}
# How finely the model's experts can be cut; and what the predictors mlp and llapor know of it, into $WORK/learned.
learn() {
    "$MOED" up "$model" --segment-bytes 1 >/dev/null 2>&1 || fail "up"
    read -r finest expert_bytes _ layers < <(shape)
    learned=none trained=""
    if [ "$layers" -gt 2 ]; then # as many as it takes to predict two layers ahead
        "$MOED" profile "$model" --text "$0" --max-tokens 1500 --hidden all -o "$WORK/trace" >/dev/null 2>&1 || fail profile
        "$MOED" train "$WORK/trace" --epochs 1 -o "$WORK/learned" >/dev/null 2>&1 || fail train
        learned=$WORK/learned trained="predictor=mlp predictor=llapor"
    fi
    "$MOED" down >/dev/null 2>&1
}
# What answers are to be: with experts cut as cuts[$1] says.
reference() {
    cut=$1
    "$MOED" up "$model" --reproducible --parallel 16 --ctx 2048 --segment-bytes "${cuts[$cut]}" >/dev/null 2>"$WORK/up" || { cat "$WORK/up" >&2; fail "up on the host"; }
    read -r "pieces[$cut]" _ "slot_bytes[$cut]" _ < <(shape)
    ask "${LENGTHS[2]}" 0 16 "want-$cut"
    ask "$LONG" 0 4 "long-$cut"
    "$MOED" logits --tokens "$LOGITS" -o "$WORK/logits-$cut" && "$MOED" logits --stepwise --tokens "$LOGITS" -o "$WORK/logits--stepwise-$cut" || fail logits
    "$MOED" down >/dev/null 2>&1
}

# Rows of memory; link and cut turn with row and model, speed and call with row and link.
cut_of() { # cut_of ROW MODEL: which of the cuts; room for one segment is room for a part of an expert
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
    2) vram=$((slot_bytes[cut] * pieces[cut])) ;;
    3) vram=${slot_bytes[cut]} ;;
    esac
    device=emu:vram=$vram,link=${links[$j]}${speeds[$((($1 + j) % 2))]}${calls[$((($1 / 2 + j) % 2))]}
    "$MOED" up "$model" --reproducible --parallel 16 --ctx 2048 --device "$device" --policy moed --segment-bytes "${cuts[$cut]}" --learned "$learned" \
        >/dev/null 2>"$WORK/up" || { cat "$WORK/up" >&2; fail "$device"; }
    device="$device, ${pieces[$cut]} segments an expert"
    case $1 in
    2) [ "$(policy_field slots)" = "${pieces[$cut]}" ] || fail "$device: not room for one expert" ;;
    3) [ "$(policy_field slots)" = 1 ] || fail "$device: not room for one segment" ;;
    esac
}

on_device() { echo $(($(segments resident) + $(segments loaded))); }
# All experts have as many segments: where the device computed a number of them that this does not divide, it computed a part of
# one, and the CPU the rest. Where the device has room for one segment, and a call to it takes longer than the CPU does, none may be.
check_split() {
    local device_segments=0 try policies=("lru --assign threshold" moed qstar dali)
    for ((try = 0; try < 12 && device_segments % pieces[cut] == 0; try++)); do
        # shellcheck disable=SC2086 # words
        "$MOED" policy ${policies[$((try % 4))]} >/dev/null || fail "policy ${policies[$((try % 4))]}"
        device_segments=$(on_device)
        ask "${LENGTHS[1]}" $try 1 got
        right got $try "${LENGTHS[1]}" || fail "$device, split experts: other tokens than on the host"
        device_segments=$(($(on_device) - device_segments))
    done
    could_split=$((could_split + 1))
    if [ $((device_segments % pieces[cut])) -eq 0 ]; then
        say "    no expert was computed in two places"
    else
        did_split=$((did_split + 1))
    fi
    check_logits "split experts"
}

# set_part KEY NAME POLICY OPTION...: what was chosen is in force
set_part() {
    local key=$1 name=$2
    shift 2
    "$MOED" policy "$@" >/dev/null || fail "policy $*"
    [ "$(policy_field "$key")" = "\"$name\"" ] || fail "policy $*: $key is not $name"
}
# All policies, and every other part of one: the deployments of a model take turns.
check_policies() {
    choice=0
    for policy in moed ondemand static lru lfu mixtral-offloading eam threshold score qstar layerwise dali prescope moepic promoe finemoe; do
        "$MOED" policy "$policy" >/dev/null || fail "policy $policy"
        check "$policy"
        case $policy in moed | lru | qstar) check_logits "$policy" ;; esac
    done
    local kind name
    for part in predictor={none,next-gate,gate-scores,residual,frequency,expert-map,activation-matrix,mixture} $trained budget={global,uniform} \
        cache={lcp,workload-guarded} prefetcher={chunked,cleared,loaded,rotating,urgent,value}; do
        kind=${part%=*} name=${part#*=}
        if [ $(((choice + row) % 2)) = 1 ]; then
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

# One prompt again and again, until $WORK/stop is there; every answer whole and right.
answer_on() {
    local n=0
    until [ -e "$WORK/stop" ]; do
        ask "$LONG" "$1" 1 "on-$1"
        right "on-$1" "$1" "$LONG" long || fail "$device: other tokens while the policy changes"
        n=$((n + 1))
    done
    echo $n >"$WORK/answered-$1"
}
# RUNNING ENDED STEPS of the worker
progress() {
    "$MOED" metrics worker | awk '$1 == "moed_worker_requests_running" { r = $2 } /^moed_worker_requests_total/ { e += $2 }
        $1 == "moed_worker_decode_steps_total" { s = $2 } END { print r + 0, e + 0, s + 0 }'
}
# Fewer requests ended than were running, and steps were made: one ran before the change and after it.
change_while_answering() {
    local running ended steps ended_then steps_then _
    for ((try = 0; try < 50; try++)); do
        read -r running ended steps < <(progress)
        # shellcheck disable=SC2086 # words
        "$MOED" policy $1 >/dev/null || fail "policy $1"
        read -r _ ended_then steps_then < <(progress)
        [ $((ended_then - ended)) -ge "$running" ] || [ "$steps_then" -le "$steps" ] || return 0
    done
    : >"$WORK/stop"
    fail "$device: no answer ran while the policy became $1"
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

at_once=0 # layers computed in one call: whether that is sooner is a matter of costs, and for one model it may never be
could_split=0 did_split=0 number=0 changes=0 learned_used=0 trained_models=0
predicted() { # predicted PREDICTOR: 0 where it was not used
    local n
    n=$(metric worker "moed_worker_predictions_total{predictor=\"$1\"}")
    echo "${n:-0}"
}
for model in "$@"; do
    say "$(basename "$model")"
    large=no LONG=1500 LENGTHS=(6 16 48) cuts=(1) pieces=() slot_bytes=()
    [ "$(stat -c %s "$model")" -lt 20000000 ] || large=yes LONG=120 LENGTHS=(4 8 16)
    [ "${MOED_TEST_SHORT:-}" != 2 ] || LONG=300 LENGTHS=(3 5 8) BATCHES=(1 2 4)
    learn
    # what an expert is cut into is part of the sum's definition, and the same on every device
    [ "$finest" = 1 ] || cuts=($((expert_bytes * 2)) $((expert_bytes / 3)) 1)
    rows=($((number % 3 + (finest > 1))))
    [ "$finest" = 1 ] || [ -n "${MOED_TEST_SHORT:-}" ] || [ $large = yes ] || rows=(1 2 3)
    for i in "${rows[@]}"; do
        cut=$(cut_of "$i" $number)
        [ -n "${pieces[$cut]:-}" ] || reference "$cut"
        deploy "$i" $number
        say "  $device"
        [ "${pieces[$cut]}" = 1 ] || check_split
        check_policies
        check_changes
        [ "$(on_device)" -gt 0 ] || fail "$device: the device computed nothing"
        case $device in *call=*) at_once=$((at_once + $(metric worker moed_worker_layers_at_once_total))) ;; esac
        [ -z "$trained" ] || [ "$i" = 0 ] || trained_models=$((trained_models + 1)) # where all is resident nothing is predicted
        learned_used=$((learned_used + $(predicted mlp) + $(predicted llapor)))
        slots_add_up || fail "$device: slots do not add up"
        "$MOED" policy | sed -n 's/^computed */    /p'
        "$MOED" down >/dev/null 2>&1
    done
    number=$((number + 1))
done
[ $number = $# ] || fail "only $number models of $#"
say "$changes changes of policy while answers were under way; $at_once layers were computed in one call when their load was there; $learned_used \
experts predicted by trained networks"
[ $((2 * did_split)) -ge $could_split ] || fail "in $did_split of $could_split deployments with experts of several segments one was computed in two places"
[ $trained_models = 0 ] || [ "$learned_used" -gt 0 ] || fail "no trained network predicted anything"
[ $# -lt 5 ] || [ "$at_once" -gt 0 ] || fail "of $# models no layer was computed in one call"
