# Functions that the shell benchmarks of decoding share: a deployment's counters, and a measured step against its bound.
# Sourced with MOED, the moed program, set.
#
# The bound of a step is the larger of two times:
# 1. the time outside of the experts, plus the experts' time by the calibrated costs: resident segments on the device, CPU segments
#    on the CPU, loads on the link. Where device and CPU have cores of their own (OVERLAP=yes) that is the longest of the three, else
#    the device's plus the longer of the other two.
# 2. the bytes of all misses, loaded or computed by the CPU, over the memory's read rate (DRAM, bytes/s; 0: unknown, not used).

# SIMULATED: the CUDA device is a simulation, whose speed means nothing.
case $(basename "${MOED_CUDA_MODULE:-}") in *-sim.so) SIMULATED=yes ;; *) SIMULATED=no ;; esac
OVERLAP=yes DRAM=${DRAM:-0}
# bound_is DEVICE [THREADS]: sets OVERLAP for a deployment with THREADS threads a process (default: as `moed up` chooses) and prints
# which bound applies. An emulated device computes on half of the cores, if there are two; a GPU needs none.
bound_is() {
    case $1 in
    emu*) [ "$(nproc)" -ge 2 ] && [ "$(nproc)" -ge $((2 * ${2:-1})) ] || OVERLAP=no ;;
    esac
    local how="device and CPU overlap: each has cores of its own" memory="; memory's rate is not known (DRAM=BYTES/S)"
    [ $OVERLAP = yes ] || how="device and CPU one after the other: they share cores"
    [ "$DRAM" = 0 ] || memory="; and at least all misses over memory's $(awk -v d="$DRAM" 'BEGIN { printf "%.1f", d / 1e9 }') GB/s"
    echo "bound: $how$memory"
}
# number FIELD [FILE]: a number of an answer in JSON, $WORK/answer-0 by default.
number() { sed -n "s/.*\"$1\": *\([0-9.]*\).*/\1/p" "${2:-$WORK/answer-0}"; }

# The counters, as NAME VALUE: of the worker and of memd's link.
snapshot() {
    { "$MOED" metrics worker; "$MOED" metrics memd; } | sed -n \
        -e 's/^moed_worker_\(decode_seconds_total\|decode_steps_total\|generated_tokens_total\|layer_seconds_total\|layers_total\|device_only_layers_total\) /\1 /p' \
        -e 's/^moed_worker_segments_total{where="\([a-z]*\)"} /\1 /p' \
        -e 's/^moed_memd_\(link_bytes_total\|link_busy_seconds_total\) /\1 /p'
}
# The calibration's lines, as NAME VALUE.
costs() {
    "$MOED" inspect --calibration --json | tr ',{' '\n\n' | sed 's/[" ]//g' | awk -F: '
        $1 == "base_s" { print (n++ ? "cpu_s" : "device_s"), $2 }
        $1 == "token_s" { print (n > 1 ? "cpu_token_s" : "device_token_s"), $2 }
        $1 == "link_segment_s" { print "link_s", $2 }
        $1 == "segment_bytes" { print "segment_bytes", $2 }'
}
# shape BEFORE AFTER: layers with experts, and segments that one token activates in all of them; one request ran between the two
# snapshots.
shape() {
    join <(sort "$1") <(sort "$2") | awk '{ d[$1] = $3 - $2 } END {
        all = d["layers_total"] + d["device_only_layers_total"]
        layers = int(all / (d["decode_steps_total"] + 1) + 0.5)
        print layers, (d["resident"] + d["loaded"] + d["cpu"]) * layers / all }'
}
# figures BEFORE AFTER COSTS BATCH LAYERS ACTIVATED (the last two from `shape`): tokens a second, ms a step, its bound in ms, %
# resident, loaded, CPU (only if there are segments), bytes a second of the link while it was busy (else 0).
figures() {
    join <(sort "$1") <(sort "$2") | awk -v batch="$4" -v costs="$3" -v layers="$5" -v activated="$6" \
        -v overlap="$OVERLAP" -v dram="$DRAM" '
        BEGIN { while ((getline line < costs) > 0) { split(line, f, " "); c[f[1]] = f[2] } }
        { d[$1] = $3 - $2 }
        END {
            steps = d["decode_steps_total"]; s = d["resident"] + d["loaded"] + d["cpu"]
            step = d["decode_seconds_total"] / steps
            device_only = d["device_only_layers_total"] # their time is not measured: take what their experts should take
            passes = (d["layers_total"] + device_only) / layers # prompts too
            w = s ? batch * activated / (s / passes) : 1 # tokens of a segment, on average
            device_only_s = device_only * s / passes / layers * (c["device_s"] + w * c["device_token_s"])
            other = step - (d["layer_seconds_total"] + device_only_s) / passes
            if (other < 0) other = 0 # layers of the prompt took longer, in a run of few steps
            device = d["resident"] * (c["device_s"] + w * c["device_token_s"]) / passes
            cpu = d["cpu"] * (c["cpu_s"] + w * c["cpu_token_s"]) / passes
            link = d["loaded"] * c["link_s"] / passes
            experts = cpu > link ? cpu : link
            experts = overlap != "yes" ? device + experts : device > experts ? device : experts
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
# median FILE COLUMN, spread FILE COLUMN (least-most): of a file with one line of figures a run
median() { cut -d ' ' -f "$2" "$1" | sort -g | awk '{ v[NR] = $1 } END { printf "%.2f", NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }
spread() { cut -d ' ' -f "$2" "$1" | sort -g | awk 'NR == 1 { a = $1 } END { printf "%.1f-%.1f", a, $1 }'; }
# step_by_bound FILE: the median of step / bound
step_by_bound() { awk '{ print $2 / $3 }' "$1" | sort -g | awk '{ v[NR] = $1 } END { printf "%.2f", v[int((NR + 1) / 2)] }'; }

# same GOT WANT WHAT: compares two files of token lists in $WORK. A difference is a line "differ: WHAT: tokens differ at position N",
# which tests/gpu/run shows in its table, and no reason to stop measuring. all_same fails at the end if there was one.
same() {
    cmp -s "$WORK/$2" "$WORK/$1" && return
    awk -v what="$3" '
        { gsub(/[][ ]/, "") }
        NR == FNR { want[FNR] = $0; lines = FNR; next }
        { got[FNR] = $0; if (FNR > lines) lines = FNR }
        END {
            for (line = 1; line <= lines; line++) {
                if (want[line] == got[line]) continue
                a = split(want[line], w, ","); b = split(got[line], g, ",")
                for (i = 1; i <= a && i <= b && w[i] == g[i]; i++) ;
                request = (lines > 1) ? ", request " line : ""
                printf "differ: %s%s: tokens differ at position %d\n", what, request, i - 1
            }
        }' "$WORK/$2" "$WORK/$1" | tee -a "$WORK/differences"
}
all_same() { [ ! -s "$WORK/differences" ] || fail "$(wc -l <"$WORK/differences") answers have other tokens than with --device host"; }

# attempt NAME COMMAND...: runs COMMAND in a subshell. If it fails, prints the row "| NAME | failed: REASON |" and a line "failed: NAME:
# REASON", stops the deployment, and returns: the next measurement still has its turn. all_done fails at the end if there was one.
attempt() {
    local name=$1 status reason
    shift
    set +e # in a subshell of a condition, -e has no effect
    (set -e; "$@") 2>"$WORK/attempt"
    status=$?
    set -e
    [ ! -s "$WORK/attempt" ] || cat "$WORK/attempt" >&2
    [ $status -ne 0 ] || return 0
    reason=$(sed -n 's/^FAILED: //p' "$WORK/attempt" | tail -n 1)
    reason=${reason:-$(tail -n 1 "$WORK/attempt")}
    echo "| $name | failed: ${reason:-exit code $status} |"
    echo "failed: $name: ${reason:-exit code $status}" | tee -a "$WORK/failed"
    tail -n 12 "$RUN"/*.log >&2 2>/dev/null || true
    timeout -k 1 20 "$MOED" down >/dev/null 2>&1 || true
    rm -f "$RUN"/*.log
}
all_done() { [ ! -s "$WORK/failed" ] || fail "$(wc -l <"$WORK/failed") measurements failed"; }
