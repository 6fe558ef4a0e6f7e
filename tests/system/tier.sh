#!/bin/bash
# Less host memory than the model. The tokens are the same with every size, on the host and on an emulated device, for long prompts
# and several clients at once. The script also kills processes that wait for the disk, and cuts the model file.
#   [MOED_TEST_SHORT=1] tier.sh MOED MODEL LARGE
# LARGE: a model whose answers take long enough to be hit by a kill. MOED_TEST_SHORT: fewer models, sizes and kills; shorter answers.
MOED=$1 MODEL=$2 LARGE=$3
. "$(dirname "$0")/../deployment.sh"

N=40
[ -z "${MOED_TEST_SHORT:-}" ] || N=16
prompts=("Once upon a time" "$(seq -s ' ' 1 60)" "int main(void) {")
check() { # check WHAT
    ask_all $N got
    cmp -s "$WORK/want" "$WORK/got" || { diff "$WORK/want" "$WORK/got" >&2; fail "$1: other tokens than with everything in memory"; }
}
up() { start_deployment "$@" --reproducible; }
down() { "$MOED" down >/dev/null 2>&1; }
answers() { wait_until 30 "$MOED" run -n 1 "x"; }
memory_adds_up() {
    "$MOED" policy --json | tr '{,}' '\n' | awk -F': ' '{ gsub(/[ "]/, "", $1); v[$1] = $2 }
        END { exit !(v["memory_slots"] > 0 && v["memory_filling"] == 0 && v["memory_retired"] == 0 &&
            v["memory_slots"] == v["memory_free"] + v["memory_resident"]) }'
}
least_of() { # least_of MODEL: prints the least size that the message of `moed up` names
    "$MOED" up "$1" --ram 1 2>&1 | sed -n 's/.*at least \([0-9.]*M\).*/\1/p'
}

# -- invalid sizes --
for size in 1 banana 0 -5G 50%% 1e9; do
    if "$MOED" up "$MODEL" --ram "$size" >/dev/null 2>"$WORK/err"; then fail "moed accepts --ram $size"; fi
    [ "$(wc -l < "$WORK/err")" -eq 1 ] && grep -q -- --ram "$WORK/err" || fail "--ram $size: $(cat "$WORK/err")"
done

# -- the same tokens --
# biases.gguf has experts with biases and several files; dense.gguf has a layer without experts, and factors beside its experts
small="--layers 3 --hidden 256 --experts 16 --top-k 2 --expert-width 256 --vocab 1000 --ctx 512"
"$MOED" mkmodel --arch gpt-oss --head-dim 64 $small --type MXFP4 --split 3 -o "$WORK/biases.gguf" >/dev/null
"$MOED" mkmodel --arch deepseek2 $small --type NVFP4 -o "$WORK/dense.gguf" >/dev/null
models=("$MODEL" "$LARGE" "$WORK"/biases-00001-of-*.gguf "$WORK/dense.gguf")
[ -z "${MOED_TEST_SHORT:-}" ] || models=("$WORK"/biases-00001-of-*.gguf "$WORK/dense.gguf") # the others follow below
for model in "${models[@]}"; do
    least=$(least_of "$model")
    [ -n "$least" ] || fail "$model: up names no least size"
    up "$model"
    ask_all $N want
    [ -z "$("$MOED" metrics memd | grep -E 'disk_|host_slots')" ] || fail "metrics of a tier without --ram"
    down
    sizes=("$least" 50% 90% 100%)
    [ -z "${MOED_TEST_SHORT:-}" ] || sizes=("$least" 90%)
    for size in "${sizes[@]}"; do
        for device in host emu:vram=30%,link=1G emu:vram=10%,link=200M,speed=0.5; do
            [ "$size" != 100% ] || [ "$device" = host ] || continue
            if [ -n "${MOED_TEST_SHORT:-}" ]; then # each device once
                case $size,$device in "$least",emu:vram=30%* | 90%,host | 90%,emu:vram=10%*) continue ;; esac
            fi
            up "$model" --ram "$size" --device "$device"
            [ "$size" = 100% ] || "$MOED" policy --predictor frequency | grep -q '^predictor frequency' || fail "$device: no other predictor"
            check "--ram $size, $device"
            if [ "$size" != 100% ]; then
                check "--ram $size, $device, again"
                "$MOED" policy | tr -s '\n ' ' ' | grep -q 'decoding waited for it' || fail "policy does not show the disk"
                "$MOED" ps | grep -q 'memory: ' || fail "ps does not show the memory"
                [ "$(metric memd moed_memd_disk_reads_failed_total)" = 0 ] || fail "reads failed"
                wait_until 10 memory_adds_up || fail "slots: $("$MOED" policy --json)"
            else
                "$MOED" policy | grep -q '^memory' && fail "policy shows a tier with --ram 100%"
            fi
            down
        done
    done
    say "ok: $(basename "$model"): the same tokens from $least on"
done

# -- every policy, with little host and little device memory --
least=$(least_of "$MODEL")
up "$MODEL"
ask_all $N want
down
up "$MODEL" --ram "$least" --device emu:vram=20%,link=300M
for policy in ondemand lru dali static threshold qstar layerwise moed; do
    "$MOED" policy $policy >/dev/null || fail "policy $policy"
    check "$policy"
done
wait_until 10 memory_adds_up || fail "slots: $("$MOED" policy --json)"
slots_add_up || fail "the device's slots do not add up"
down
say "ok: every policy at the least size"

# -- killed while waiting for the disk --
least=$(least_of "$LARGE")
up "$LARGE"
"$MOED" run -n 60 --ignore-end --temp 0 "${prompts[0]}" > "$WORK/want-0"
down
for device in host emu:vram=20%,link=300M; do
    up "$LARGE" --ram "$least" --device "$device" --cpuexec
    whole=0 victims=(worker cpuexec worker "worker cpuexec" cpuexec)
    if [ -n "${MOED_TEST_SHORT:-}" ]; then
        case $device in host) victims=(worker cpuexec) ;; *) victims=("worker cpuexec" cpuexec) ;; esac
    fi
    for victim in "${victims[@]}"; do
        "$MOED" run -n 60 --ignore-end --temp 0 "${prompts[0]}" > "$WORK/got-0" 2>"$WORK/err" & asking=$!
        "$MOED" run -n 60 --ignore-end --temp 0 "${prompts[1]}" >/dev/null 2>&1 & other=$!
        sleep 0.3
        for name in $victim; do kill -9 "$(pid_of "$name")" 2>/dev/null || true; done
        if wait $asking; then
            cmp -s "$WORK/want-0" "$WORK/got-0" || fail "$device: wrong tokens after $victim died"
            whole=$((whole + 1))
        else
            grep -qi again "$WORK/err" || fail "$device, $victim: $(cat "$WORK/err")"
        fi
        wait $other || true
        answers || fail "$device: no answer after $victim died"
    done
    [ $whole -gt 0 ] || fail "$device: no answer outlived cpuexec"
    "$MOED" run -n 60 --ignore-end --temp 0 "${prompts[0]}" | cmp -s - "$WORK/want-0" || fail "$device: wrong answer afterwards"
    wait_until 10 memory_adds_up || fail "$device: slots: $("$MOED" policy --json)"
    down
done
say "ok: worker and cpuexec killed"

# -- memd killed, then memd stopped --
up "$LARGE" --ram "$least"
for pause in 0.1 0.4; do # before the first token the client itself retries
    "$MOED" run -n 60 --ignore-end --temp 0 "${prompts[0]}" > "$WORK/got-0" 2>"$WORK/err" & asking=$!
    sleep $pause
    kill -9 "$(pid_of memd)"
    if wait $asking; then
        cmp -s "$WORK/want-0" "$WORK/got-0" || fail "wrong tokens after memd died"
    else
        grep -qi again "$WORK/err" || fail "memd died: $(cat "$WORK/err")"
    fi
    answers || fail "no answer after memd died"
done
answers || fail "no answer after memd died"
"$MOED" run -n 400 --ignore-end "${prompts[1]}" >/dev/null 2>"$WORK/err" & asking=$!
sleep 0.3
memd=$(pid_of memd)
stop_process "$memd"
started=$SECONDS
if wait $asking; then fail "an answer while memd is stopped"; fi
kill -CONT "$memd"
grep -q 'was not read for' "$WORK/err" || fail "memd is stopped: $(cat "$WORK/err")"
[ $((SECONDS - started)) -lt 60 ] || fail "the error came too late"
"$MOED" run -n 60 --ignore-end --temp 0 "${prompts[0]}" | cmp -s - "$WORK/want-0" || fail "a wrong answer after memd was stopped"
[ "$(pid_of memd)" = "$memd" ] || fail "memd was restarted though it was only stopped"
down
say "ok: memd killed, memd stopped"

# -- the file is cut, or written in place: no answer from two files --
for how in cut overwritten; do
    cp "$MODEL" "$WORK/$how.gguf"
    up "$WORK/$how.gguf" --ram "$(least_of "$MODEL")"
    case $how in
        cut) truncate -s $(($(stat -c %s "$MODEL") / 4)) "$WORK/cut.gguf" ;;
        overwritten) head -c 65536 /dev/zero |
            dd of="$WORK/overwritten.gguf" bs=65536 seek=8 conv=notrunc status=none ;;
    esac
    if "$MOED" run -n 60 --temp 0 --ignore-end "${prompts[1]}" >/dev/null 2>"$WORK/err"; then fail "an answer from a file that is $how"; fi
    grep -q 'file was changed' "$RUN/memd.log" || fail "memd says nothing of the file that is $how"
    failed() { "$MOED" ps 2>&1 | grep -q 'memd has failed.*file was changed'; }
    wait_until 10 failed || fail "the deployment has not failed: $("$MOED" ps 2>&1)"
    down
done
say "ok: a file that is cut or overwritten"
