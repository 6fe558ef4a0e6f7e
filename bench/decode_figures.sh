# What the shell benchmarks of decoding share: a deployment's counters, and what a piece of decoding was beside its bound.
# Sourced with MOED, the moed program, set.
#
# The bound of a step, the larger of two. Its time outside of the experts, and what device, CPU and link take for its experts: resident
# segments x their time, CPU segments x theirs, loads x theirs, all as calibrated, each alone. Where device and CPU have cores of
# their own (BESIDE=yes) the longest of the three, else device + the longer of the others. And its misses, loaded or computed
# by the CPU: their bytes over the rate at which memory is read (DRAM, bytes/s; 0: unknown, this bound is left out).

# SIMULATED: on a CUDA device that is simulated, speeds are none.
case $(basename "${MOED_CUDA_MODULE:-}") in *-sim.so) SIMULATED=yes ;; *) SIMULATED=no ;; esac
BESIDE=yes DRAM=${DRAM:-0}
# bound_is DEVICE [THREADS]: sets BESIDE for a deployment with so many threads a process (without: as `moed up` chooses) and says
# which bound it is. A GPU computes by itself; an emulated device on half of the cores, if there are two.
bound_is() {
    case $1 in
    emu*) [ "$(nproc)" -ge 2 ] && [ "$(nproc)" -ge $((2 * ${2:-1})) ] || BESIDE=no ;;
    esac
    local how="device and CPU side by side: each has cores of its own" memory="; memory's rate is not known (DRAM=BYTES/S)"
    [ $BESIDE = yes ] || how="device and CPU one after the other: they share cores"
    [ "$DRAM" = 0 ] || memory="; and at least all misses over memory's $(awk -v d="$DRAM" 'BEGIN { printf "%.1f", d / 1e9 }') GB/s"
    echo "bound: $how$memory"
}
# Of one answer in $WORK/answer-0 or another file: a number.
number() { sed -n "s/.*\"$1\": *\([0-9.]*\).*/\1/p" "${2:-$WORK/answer-0}"; }

# The counters, as NAME VALUE: the worker's, and what the link moved.
snapshot() {
    { "$MOED" metrics worker; "$MOED" metrics memd; } | sed -n \
        -e 's/^moed_worker_\(decode_seconds_total\|decode_steps_total\|generated_tokens_total\|layer_seconds_total\|layers_total\|layers_alone_total\) /\1 /p' \
        -e 's/^moed_worker_segments_total{where="\([a-z]*\)"} /\1 /p' \
        -e 's/^moed_memd_\(link_bytes_total\|link_busy_seconds_total\) /\1 /p'
}
# The calibration's lines, likewise.
costs() {
    "$MOED" inspect --calibration --json | tr ',{' '\n\n' | sed 's/[" ]//g' | awk -F: '
        $1 == "base_s" { print (n++ ? "cpu_s" : "device_s"), $2 }
        $1 == "token_s" { print (n > 1 ? "cpu_token_s" : "device_token_s"), $2 }
        $1 == "link_segment_s" { print "link_s", $2 }
        $1 == "segment_bytes" { print "segment_bytes", $2 }'
}
# shape BEFORE AFTER: layers with experts, and segments that one token activates in all of them; of one request between the two.
shape() {
    join <(sort "$1") <(sort "$2") | awk '{ d[$1] = $3 - $2 } END {
        all = d["layers_total"] + d["layers_alone_total"]
        layers = int(all / (d["decode_steps_total"] + 1) + 0.5)
        print layers, (d["resident"] + d["loaded"] + d["cpu"]) * layers / all }'
}
# figures BEFORE AFTER COSTS BATCH LAYERS ACTIVATED, the last two as `shape` says: tokens a second, ms a step, its bound, %
# resident, loaded, CPU (those three only where there are segments), bytes a second of the link while it was busy (else 0).
figures() {
    join <(sort "$1") <(sort "$2") | awk -v batch="$4" -v costs="$3" -v layers="$5" -v activated="$6" \
        -v beside="$BESIDE" -v dram="$DRAM" '
        BEGIN { while ((getline line < costs) > 0) { split(line, f, " "); c[f[1]] = f[2] } }
        { d[$1] = $3 - $2 }
        END {
            steps = d["decode_steps_total"]; s = d["resident"] + d["loaded"] + d["cpu"]
            step = d["decode_seconds_total"] / steps
            alone = d["layers_alone_total"] # those have no time of their own: what their experts should take
            passes = (d["layers_total"] + alone) / layers # prompts too
            w = s ? batch * activated / (s / passes) : 1 # tokens of a segment, on average
            alone_s = alone * s / passes / layers * (c["device_s"] + w * c["device_token_s"])
            other = step - (d["layer_seconds_total"] + alone_s) / passes
            if (other < 0) other = 0 # layers of the prompt took longer, in a run of few steps
            device = d["resident"] * (c["device_s"] + w * c["device_token_s"]) / passes
            cpu = d["cpu"] * (c["cpu_s"] + w * c["cpu_token_s"]) / passes
            link = d["loaded"] * c["link_s"] / passes
            experts = cpu > link ? cpu : link
            experts = beside != "yes" ? device + experts : device > experts ? device : experts
            bound = other + experts
            read = dram > 0 ? (d["loaded"] + d["cpu"]) * c["segment_bytes"] / passes / dram : 0
            if (read > bound) bound = read
            # the first token of a request comes from the pass over its prompt, which is not in the time
            rate = (d["generated_tokens_total"] - batch) / d["decode_seconds_total"]
            printf "%.3f %.4f %.4f", rate, step * 1e3, bound * 1e3
            if (s) printf " %.0f %.0f %.0f", 100 * d["resident"] / s, 100 * d["loaded"] / s, 100 * d["cpu"] / s
            busy = d["link_busy_seconds_total"]
            printf " %.0f\n", (busy > 0 ? d["link_bytes_total"] / busy : 0)
        }' -
}
# median FILE COLUMN, spread FILE COLUMN (least-most): of a file with a line of figures a run
median() { cut -d ' ' -f "$2" "$1" | sort -g | awk '{ v[NR] = $1 } END { printf "%.2f", NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }
spread() { cut -d ' ' -f "$2" "$1" | sort -g | awk 'NR == 1 { a = $1 } END { printf "%.1f-%.1f", a, $1 }'; }
# step_by_bound FILE: how many times its bound a step took, the median
step_by_bound() { awk '{ print $2 / $3 }' "$1" | sort -g | awk '{ v[NR] = $1 } END { printf "%.2f", v[int((NR + 1) / 2)] }'; }
