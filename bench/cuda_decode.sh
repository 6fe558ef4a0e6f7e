#!/bin/bash
# Measures whole deployments on a CUDA device: prefill and decode with all experts resident (also without early launches, without
# graphs, with the dense part on the host), and decode with a share of the experts resident under every policy. Each figure stands
# with its bound. Every answer is greedy and is compared with that of --device host: a difference is a line beside the figures. A
# deployment that fails is a line too; the others are still measured. The script fails at its end if there was one of either.
#   cuda_decode.sh MOED MODEL [-d DEVICE] [-r RUNS] [-n TOKENS] [-q PROMPT_TOKENS] [-v "all 10 25 50"] [-p "POLICIES"]
#                  [-t SECONDS] [-a SECONDS] [-l LINK_GB_S] [-m MEMORY_GB_S] [-w FOLDER]
# Policies take turns within a run, each after its own warm-up with other prompts. Figures are medians over the runs, with the
# spread.
#   -v      what to measure: "all" (experts resident), or shares of them in per cent
#   -t      approximate limit. Runs beyond it are skipped: first repetitions, then policies. The output names what was skipped.
#   -a      limit of one request (60)
#   -l, -m  rates that bench-device measured: a large copy from pinned memory, and a copy within the device
#   -w      keep the host's tokens in this folder, and take them from there if an earlier run has kept them
# GPU_PCI, the address of the GPU on the bus: a table says what processes take of its memory beside what moed allocates.
# PEER, or llama-bench in PATH, built with CUDA, computes the same file. On the simulated device the script compares everything and
# prints no speed. Lines that begin with "|" are the tables; tests/gpu/run reads lines that begin with "figure: ", "differ: " and
# "failed: ".
MOED=$1 MODEL=$2
shift 2
DEVICE=cuda:0 RUNS=5 TOKENS=64 PROMPT=512 SHARES="all 10 25 50" POLICIES=${POLICIES:-} LIMIT=0 LINK=0 MEMORY=0 ASK_SECONDS=60 KEPT=
while getopts d:r:n:q:v:p:t:a:l:m:w: option; do
    case $option in
    d) DEVICE=$OPTARG ;; r) RUNS=$OPTARG ;; n) TOKENS=$OPTARG ;; q) PROMPT=$OPTARG ;; v) SHARES=$OPTARG ;;
    p) POLICIES=$OPTARG ;; t) LIMIT=$OPTARG ;; a) ASK_SECONDS=$OPTARG ;; l) LINK=$OPTARG ;; m) MEMORY=$OPTARG ;; w) KEPT=$OPTARG ;;
    *) exit 2 ;;
    esac
done
. "$(dirname "$0")/../tests/deployment.sh"
. "$(dirname "$0")/decode_figures.sh"
. "$(dirname "$0")/gpu_state.sh"
[ $SIMULATED = no ] || export MOED_DEVICE_POISON=1 # a wrong residency bit shows; it takes the link's time, which a GPU's run measures
everyone=("The" "How" "What" "Once") # short: a prompt's step counts as one of decoding
ids=$(awk -v n="$PROMPT" 'BEGIN { for (i = 0; i < n; i++) printf "%s%d", i ? "," : "", 3 + i * 37 % 250 }')

up() {
    local code=0
    timeout -k 10 "$ASK_SECONDS" "$MOED" up "$MODEL" --speculate off --ctx $((PROMPT + TOKENS + 32)) "$@" >/dev/null 2>"$WORK/up" || code=$?
    [ $code -eq 0 ] || fail "up $*: $(if [ $code -eq 124 ] || [ $code -eq 137 ]; then echo "not ready after $ASK_SECONDS s"; else tail -n 1 "$WORK/up"; fi)"
}
down() {
    timeout -k 1 20 "$MOED" down >/dev/null 2>&1 || true
    rm -f "$RUN"/*.log # so that the next logs are only the next deployment's
}
# ask NAME PROMPT...: the tokens, into the file NAME.
ask() {
    local name=$1
    shift
    prompts=("$@")
    ask_all "$TOKENS" "$name"
}
prefill() { # prefill NAME: tokens/s; the tokens that follow, into the file NAME
    timeout -k 1 "$ASK_SECONDS" "$MOED" run -n 4 --ignore-end --temp 0 --json --tokens "$ids" >"$WORK/prefill" || fail "a prompt of $PROMPT tokens"
    sed -n 's/.*"tokens": *\(\[[^]]*\]\).*/\1/p' "$WORK/prefill" >"$WORK/$1"
    number prompt_tokens_per_s "$WORK/prefill"
}
segments() { metric worker "moed_worker_segments_total{where=\"$1\"}"; }
shown() { [ $SIMULATED = no ] && printf "$@" || printf 'ran'; } # shown FORMAT VALUE: speeds are no speeds on the simulation
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { if (b > 0) printf "%.2f", a / b; else printf "-" }'; }
# share_of BYTES_PER_S GB_S: per cent, where both are known
share_of() { awk -v b="$1" -v r="$2" 'BEGIN { if (r > 0 && b > 0) printf "%.0f %%", b / r / 1e7; else printf "-" }'; }
# fact NAME: a number of the model
fact() { "$MOED" inspect --json "$MODEL" | tr '{,}' '\n' | sed -n "s/^ *\"$1\": *//p"; }

# ---- What is right: the tokens of --device host ----

wanted() {
    local i
    up --device host --reproducible
    for i in "${!everyone[@]}"; do ask "want-$i" "${everyone[$i]}"; done
    prefill want-prefill >/dev/null
    ask want-all "${everyone[@]}"
    [ -z "$KEPT" ] || { mkdir -p "$KEPT" && cp "$WORK"/want-* "$KEPT/"; }
    case " $SHARES " in *" all "*) measure host yes ;; esac
    down
}

# ---- All experts resident ----

# measure NAME COMPARE: RUNS prompts and answers, one at a time, in turns; "tokens/s prefill_tokens/s" a run into NAME.figures.
measure() {
    local run prompt rate
    prefill got-prefill >/dev/null
    for ((run = 0; run < RUNS; run++)); do
        prompt=$((run % ${#everyone[@]}))
        ask got "${everyone[$prompt]}"
        rate=$(number tokens_per_s)
        echo "$rate $(prefill got-prefill)" >>"$WORK/$1.figures"
        [ "$2" = no ] || { same got "want-$prompt" "$1"; same got-prefill want-prefill "$1, a long prompt"; }
    done
}
pinned() { grep -q " pinned" "$RUN/memd.log"; } # or cannot be: copies are then as fast as they will be
all_there() { [ "$(policy_field free)" = 0 ] && [ "$(policy_field filling)" = 0 ]; }
# blas: which cuBLAS the worker uses, by its log
blas() {
    local found
    found=$(sed -n 's/.*long prompts are computed with cuBLAS: //p' "$RUN/worker.log" | tail -n 1)
    echo "${found:-no cuBLAS}"
}
# resident_row NAME [NOTE]: prints its decode speed, the speed that the memory's rate allows, and the host's speed
resident_row() {
    local rate prompt memory host=0
    rate=$(median "$WORK/$1.figures" 1) prompt=$(median "$WORK/$1.figures" 2)
    [ ! -e "$WORK/host.figures" ] || host=$(median "$WORK/host.figures" 1)
    memory=$(share_of "$(awk -v r="$rate" -v b="$bytes" 'BEGIN { print r * b }')" "$MEMORY")
    case $1 in host*) memory=- ;; esac
    echo "| $1${2:+ ($2)} | $(shown %s "$prompt") | $(shown '%s (%s)' "$rate" "$(spread "$WORK/$1.figures" 1)")" \
        "| $(shown %s "$memory") | $(shown %s "$(ratio "$rate" "$host")") |"
}
# planned: MB that the plan gives the driver, of memd's log
planned() { sed -n 's/.*, \([0-9.]* [kMG]B\) for the driver;.*/\1/p' "$RUN/memd.log" | tail -n 1; }
# memory_row NAME BEFORE: what the deployment takes of the GPU's memory after use. BEFORE: MiB that were in use without it.
memory_row() {
    local taken allocated
    taken=$(gpu_query memory.used) || return 0
    case $2$taken in '' | *[!0-9]*) return 0 ;; esac
    taken=$((taken - $2))
    allocated=$({ "$MOED" metrics memd; "$MOED" metrics worker; } | awk '
        /^moed_memd_device_bytes[{].*use="(dense|experts)"/ || /^moed_worker_device_bytes[{]/ { n += $NF } END { printf "%.0f", n / 1048576 }')
    echo "| $1 | $taken | $allocated | $((taken - allocated)) | $(planned) | $(gpu_processes "$(pid_of memd)" "$(pid_of worker)") |" >>"$WORK/memory"
    [ -e "$WORK/contexts" ] || echo "$((taken - allocated)) MiB beside it, planned $(planned)" >"$WORK/contexts"
}
memory_rows() {
    [ -e "$WORK/memory" ] || return 0
    echo "memory of the device after use, MiB:"
    echo "| deployment | taken | allocated by moed | beside it: contexts, code, cuBLAS | planned for that | memd's process / the worker's |"
    echo "|---|---|---|---|---|---|"
    cat "$WORK/memory"
}
# resident NAME COMPARE OPTIONS...: a deployment with every expert on the device and no other place to compute it
resident() {
    local name=$1 compare=$2 cpu there note='' before
    shift 2
    before=$(gpu_query memory.used) || before=
    up --policy layerwise "$@"
    if [ "$(policy_field slots)" -lt "$all_segments" ]; then
        [ $SIMULATED = no ] || fail "$("$MOED" policy --json): no room for $all_segments segments"
        down
        echo "| $name | does not fit the device | | | |"
        return
    fi
    wait_until 60 all_there || fail "not everything comes: $("$MOED" policy --json)"
    cpu=$(segments cpu) there=$(segments resident)
    measure "$name" "$compare"
    [ "$(segments cpu)" = "$cpu" ] || fail "experts were computed on the CPU"
    [ "$(segments resident)" -gt "$there" ] || fail "nothing was computed on the device"
    [ "$compare" = yes ] || note=$(blas)
    memory_row "$name" "$before"
    down
    resident_row "$name" "$note"
}
# What a token reads: activated experts, and the dense weights but the table of embeddings, of which it reads one row.
token_bytes() {
    local table
    table=$("$MOED" inspect --tensors "$MODEL" | awk '$1 == "token_embd.weight" { print $(NF - 1) }')
    [ "$(fact tied_output)" = false ] || table=0
    echo $(($(fact expert_bytes) * $(fact experts_used) / $(fact experts) + $(fact dense_bytes) - ${table:-0}))
}
# The peer's prefill and decode, beside ours.
peer_row() {
    local peer=${PEER:-$(command -v llama-bench || true)} ours=0
    if [ -z "$peer" ] || [ $SIMULATED = yes ]; then
        echo "| peer | none was there | | | |"
        return
    fi
    # One line a field; "backends" comes before the figures, and tests one after the other: of the prompt, of the answer.
    timeout 60 "$peer" -m "$MODEL" -ngl 99 -p "$PROMPT" -n "$TOKENS" -r "$RUNS" -o json 2>"$WORK/peer.err" |
        tr ',{' '\n\n' | sed 's/[" ]//g' | awk -F: '
        $1 == "backends" && $0 ~ /CUDA/ { cuda = 1 }
        $1 == "n_gen" { n = $2 }
        $1 == "avg_ts" { rate[n > 0] = $2 }
        END { if (cuda && rate[1] > 0) print rate[1], rate[0] }' >"$WORK/peer.figures" || true
    if [ ! -s "$WORK/peer.figures" ]; then
        sed 's/^/peer: /' "$WORK/peer.err" >&2
        echo "| $(basename "$peer") | gave no figures of a CUDA device | | | |"
        return
    fi
    [ ! -e "$WORK/device.figures" ] || ours=$(median "$WORK/device.figures" 1)
    ratio "$ours" "$(median "$WORK/peer.figures" 1)" >"$WORK/peer-ratio"
    echo "| $(basename "$peer") | $(median "$WORK/peer.figures" 2) | $(median "$WORK/peer.figures" 1) | moed / peer: $(cat "$WORK/peer-ratio") | |"
}
measure_resident() {
    bytes=$(token_bytes)
    all_segments=$((($(fact layers | head -n 1) - $(fact dense_layers)) * $(fact experts) * $(fact segments)))
    echo "$(basename "$MODEL"): a token reads $(awk -v b="$bytes" 'BEGIN { printf "%.1f", b / 1e6 }') MB of weights"
    echo "| all experts resident | prefill tokens/s ($PROMPT tokens) | decode tokens/s, median (least-most)" \
        "| weights read, of the memory's rate | times host |"
    echo "|---|---|---|---|---|"
    [ ! -e "$WORK/host.figures" ] || resident_row host
    # A calibration finds no loads to measure where all is resident: those with a share keep their own.
    export XDG_CACHE_HOME=$WORK/cache-resident
    attempt device resident device yes --device "$DEVICE" --reproducible
    attempt "device, order free in prefill" resident "device, order free in prefill" no --device "$DEVICE"
    export MOED_DEVICE_PDL=0 # the same as `device` before compute capability 9.0
    attempt "device, no early launches" resident "device, no early launches" yes --device "$DEVICE" --reproducible
    unset MOED_DEVICE_PDL
    export MOED_DEVICE_GRAPHS=0
    attempt "device, no graphs" resident "device, no graphs" yes --device "$DEVICE" --reproducible
    unset MOED_DEVICE_GRAPHS
    attempt "device, dense=host" resident "device, dense=host" yes --device "$DEVICE,dense=host" --reproducible
    attempt peer peer_row
    memory_rows
    export XDG_CACHE_HOME=$WORK/cache
    [ $SIMULATED = no ] || return 0
    local rate="no figure" host="no figure" peer=none contexts=''
    [ ! -e "$WORK/device.figures" ] || rate="$(median "$WORK/device.figures" 1) tokens/s"
    [ ! -e "$WORK/host.figures" ] || host=$(median "$WORK/host.figures" 1)
    [ ! -e "$WORK/peer-ratio" ] || peer=$(cat "$WORK/peer-ratio")
    [ ! -e "$WORK/contexts" ] || contexts="; device memory: $(cat "$WORK/contexts")"
    echo "figure: resident $rate, host $host, by the peer's: $peer$contexts"
}

# ---- A share of them ----

# share SHARE ENDS: a deployment with SHARE per cent resident, under all policies, until the second ENDS
share() {
    local share=$1 ends=$2 run took=0 began prompt policy layers activated
    up --device "$DEVICE,vram=$share%" --reproducible --policy ondemand
    wait_until 60 pinned || fail "memd does not say that memory is pinned"
    # Every preset that serves: the message about one that does not exist names them.
    [ -n "$POLICIES" ] || POLICIES=$("$MOED" policy none-such 2>&1 | sed -n 's/.*there are //p' | tr -d ,)
    [ -n "$POLICIES" ] || fail "which policies are there?"
    costs >"$WORK/costs"
    snapshot >"$WORK/before"
    ask got "${everyone[0]}"
    snapshot >"$WORK/after"
    same got want-0 "$share %"
    read -r layers activated < <(shape "$WORK/before" "$WORK/after")
    rm -f "$WORK"/at-*.figures
    for ((run = 0; run < RUNS && (run == 0 || SECONDS + took <= ends); run++)); do
        began=$SECONDS
        prompt=$((run % ${#everyone[@]}))
        for policy in $POLICIES; do
            [ "$SECONDS" -lt "$ends" ] || { printf ' %s%%/%s/run-%d' "$share" "$policy" $((run + 1)) >>"$WORK/left_out"; continue; }
            "$MOED" policy "$policy" >/dev/null || fail "policy $policy"
            ask got "${everyone[@]}"
            same got want-all "$share %, $policy, ${#everyone[@]} at once"
            snapshot >"$WORK/before"
            ask got "${everyone[$prompt]}"
            snapshot >"$WORK/after"
            same got "want-$prompt" "$share %, $policy"
            figures "$WORK/before" "$WORK/after" "$WORK/costs" 1 "$layers" "$activated" >>"$WORK/at-$policy.figures"
        done
        took=$((SECONDS - began))
    done
    slots_add_up || fail "slots do not add up: $("$MOED" policy --json)"
    down
}
# Of what `share` has measured, also before it failed.
share_rows() {
    local share=$1 f policy link
    for f in "$WORK"/at-*.figures; do
        [ -e "$f" ] || continue
        policy=${f##*/at-} policy=${policy%.figures}
        link=$(share_of "$(median "$f" 7)" "$LINK")
        echo "| $share % | $policy | $(shown '%s (%s)' "$(median "$f" 1)" "$(spread "$f" 1)")" \
            "| $(shown %s "$(median "$f" 2)") | $(shown %s "$(median "$f" 3)") | $(shown %s "$(step_by_bound "$f")")" \
            "| $(tail -n 1 "$f" | cut -d ' ' -f 4-6 | sed 's/ / \/ /g') | $(shown %s "$link") |"
        echo "$(median "$f" 1) $policy $(step_by_bound "$f")" >>"$WORK/share-$share"
    done
    [ -e "$WORK/share-$share" ] && [ $SIMULATED = no ] || return 0
    echo "figure: $share %: $(sort -gr "$WORK/share-$share" | awk 'NR == 1 { printf "%s %s tokens/s, %s bounds", $2, $1, $3 }')"
}
measure_shares() {
    local left=$# share ends
    bound_is "$DEVICE"
    echo
    echo "| resident | policy | tokens/s, median (least-most) | ms a token | bound, ms | token / bound" \
        "| % resident / loaded / CPU | link while busy, of its rate |"
    echo "|---|---|---|---|---|---|---|---|"
    for share in "$@"; do
        # what is left of the time, in equal parts
        ends=$((LIMIT == 0 ? 1000000 : SECONDS + (LIMIT - SECONDS) / left))
        left=$((left - 1))
        if [ "$SECONDS" -ge "$ends" ]; then
            printf ' %s%%' "$share" >>"$WORK/left_out"
            continue
        fi
        attempt "$share %" share "$share" "$ends"
        share_rows "$share"
    done
    [ ! -e "$WORK/left_out" ] || echo "left out, no time:$(cat "$WORK/left_out")"
}

if [ -n "$KEPT" ] && [ -e "$KEPT/want-all" ]; then
    cp "$KEPT"/want-* "$WORK/"
else
    attempt host wanted
    [ ! -s "$WORK/failed" ] || fail "no tokens of --device host"
fi
shares=
for part in $SHARES; do
    if [ "$part" = all ]; then measure_resident; else shares="$shares $part"; fi
done
# shellcheck disable=SC2086 # words
[ -z "$shares" ] || measure_shares $shares
all_same
all_done
say "ok: the tokens of --device host in every deployment"
