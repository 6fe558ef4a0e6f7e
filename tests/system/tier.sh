#!/bin/bash
# Less host memory than the model: the same tokens to the bit whatever the size, on the host and on an emulated device, for long
# prompts and several clients at once; and when a process is killed while it waits, or the file is cut.
#   [MOED_TEST_SHORT=1] tier.sh MOED MODEL LARGE
# LARGE: a model whose answers take a while, to be killed in the middle of. SHORT: fewer sizes.
MOED=$1 MODEL=$2 LARGE=$3
. "$(dirname "$0")/../deployment.sh"

N=40
prompts=("Once upon a time" "$(seq -s ' ' 1 60)" "int main(void) {")
check() { # check WHAT
    ask_all $N got
    cmp -s "$WORK/want" "$WORK/got" || { diff "$WORK/want" "$WORK/got" >&2; fail "$1: other tokens than with everything in memory"; }
}
up() { "$MOED" up "$@" --reproducible >/dev/null 2>"$WORK/up" || { cat "$WORK/up" >&2; fail "up $*"; }; }
down() { "$MOED" down >/dev/null 2>&1; }
answers() { wait_until 30 "$MOED" run -n 1 "x"; }
memory_adds_up() {
    "$MOED" policy --json | tr '{,}' '\n' | awk -F': ' '{ gsub(/[ "]/, "", $1); v[$1] = $2 }
        END { exit !(v["memory_slots"] > 0 && v["memory_filling"] == 0 && v["memory_retired"] == 0 &&
            v["memory_slots"] == v["memory_free"] + v["memory_resident"]) }'
}
least_of() { # the least size that `up` names
    "$MOED" up "$1" --ram 1 2>&1 | sed -n 's/.*at least \([0-9.]*M\).*/\1/p'
}

# -- sizes that make no sense --
for size in 1 banana 0 -5G 50%% 1e9; do
    if "$MOED" up "$MODEL" --ram "$size" >/dev/null 2>"$WORK/err"; then fail "--ram $size was taken"; fi
    [ "$(wc -l < "$WORK/err")" -eq 1 ] && grep -q -- --ram "$WORK/err" || fail "--ram $size: $(cat "$WORK/err")"
done

# -- the same tokens --
# experts with biases, in several files; a layer without experts, and another type
small="--layers 3 --hidden 256 --experts 16 --top-k 2 --expert-width 256 --vocab 1000 --ctx 512"
"$MOED" mkmodel --arch gpt-oss --head-dim 64 $small --type MXFP4 --split 3 -o "$WORK/biases.gguf" >/dev/null
"$MOED" mkmodel --arch deepseek2 $small --type Q5_K -o "$WORK/dense.gguf" >/dev/null
for model in "$MODEL" "$LARGE" "$WORK"/biases-00001-of-*.gguf "$WORK/dense.gguf"; do
    least=$(least_of "$model")
    [ -n "$least" ] || fail "$model: no least size is named"
    up "$model"
    ask_all $N want
    [ -z "$("$MOED" metrics memd | grep -E 'disk_|host_slots')" ] || fail "metrics of a tier that is not there"
    down
    sizes=("$least" 50% 90% 100%)
    [ -z "${MOED_TEST_SHORT:-}" ] || sizes=("$least" 90%)
    for size in "${sizes[@]}"; do
        for device in host emu:vram=30%,link=1G emu:vram=10%,link=200M,speed=0.5; do
            [ "$size" != 100% ] || [ "$device" = host ] || continue
            up "$model" --ram "$size" --device "$device"
            [ "$size" = 100% ] || "$MOED" policy --predictor frequency | grep -q '^predictor frequency' || fail "$device: no other predictor"
            check "--ram $size, $device"
            if [ "$size" != 100% ]; then
                check "--ram $size, $device, again"
                "$MOED" policy | grep -q 'of decode time waited' || fail "policy says nothing of the disk"
                "$MOED" ps | grep -q 'memory: ' || fail "ps says nothing of the memory"
                [ "$(metric memd moed_memd_disk_reads_failed_total)" = 0 ] || fail "reads failed"
                wait_until 5 memory_adds_up || fail "slots: $("$MOED" policy --json)"
            else
                "$MOED" policy | grep -q '^memory' && fail "100 % is no tier"
            fi
            down
        done
    done
    say "ok: $(basename "$model"): the same tokens from $least on"
done

# -- a policy that moves everything, with little of both memories --
least=$(least_of "$MODEL")
up "$MODEL"
ask_all $N want
down
up "$MODEL" --ram "$least" --device emu:vram=20%,link=300M
for policy in ondemand lru dali static threshold qstar layerwise moed; do
    "$MOED" policy $policy >/dev/null || fail "policy $policy"
    check "$policy"
done
wait_until 5 memory_adds_up || fail "slots: $("$MOED" policy --json)"
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
    whole=0
    for victim in worker cpuexec worker "worker cpuexec" cpuexec; do
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

# -- memd killed, and memd that does not answer --
up "$LARGE" --ram "$least"
for pause in 0.1 0.4; do # before its first token a client asks again by itself
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
kill -STOP "$memd"
started=$SECONDS
if wait $asking; then fail "an answer while memd is stopped"; fi
kill -CONT "$memd"
grep -q 'was not read for' "$WORK/err" || fail "memd is stopped: $(cat "$WORK/err")"
[ $((SECONDS - started)) -lt 20 ] || fail "that took too long to be noticed"
"$MOED" run -n 60 --ignore-end --temp 0 "${prompts[0]}" | cmp -s - "$WORK/want-0" || fail "a wrong answer after memd was stopped"
[ "$(pid_of memd)" = "$memd" ] || fail "memd was restarted though it only slept"
down
say "ok: memd killed, memd stopped"

# -- the file is cut --
cp "$MODEL" "$WORK/cut.gguf"
up "$WORK/cut.gguf" --ram "$(least_of "$MODEL")"
memd=$(pid_of memd)
truncate -s $(($(stat -c %s "$MODEL") / 4)) "$WORK/cut.gguf"
started=$SECONDS
if "$MOED" run -n 60 --temp 0 --ignore-end "${prompts[1]}" >/dev/null 2>"$WORK/err"; then fail "an answer from half a file"; fi
grep -q 'cannot be read' "$WORK/err" || fail "the file is cut: $(cat "$WORK/err")"
[ $((SECONDS - started)) -lt 10 ] || fail "that took too long to be noticed"
grep -q 'the file was cut' "$RUN/memd.log" || fail "memd says nothing of the file"
[ "$(pid_of memd)" = "$memd" ] && kill -0 "$memd" || fail "memd did not outlive it"
cat "$MODEL" > "$WORK/cut.gguf"
"$MOED" run -n 5 "x" >/dev/null || fail "no answer though the file is whole again"
down
say "ok: a file that is cut"
