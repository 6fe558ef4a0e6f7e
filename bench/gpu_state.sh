# shellcheck shell=bash
# What nvidia-smi knows about the GPU, for tests/gpu/run and the benchmarks, which source this file. GPU_PCI is the GPU's address on
# the bus; without it, or without nvidia-smi, every function does nothing. GPU_PCI also names the GPU if CUDA counts others first.

# gpu_query FIELD,...: prints the values, with ", " between. Fails if nvidia-smi does not know a field.
gpu_query() {
    [ -n "${GPU_PCI:-}" ] || return 1
    timeout 10 nvidia-smi -i "$GPU_PCI" "--query-gpu=$1" --format=csv,noheader,nounits 2>/dev/null
}
# gpu_facts: prints in a line what stays as it is while the benchmarks run.
gpu_facts() {
    local values fields=driver_version,persistence_mode,compute_mode,ecc.mode.current,power.limit,clocks.max.sm,clocks.max.mem
    fields=$fields,pcie.link.gen.max,pcie.link.width.max
    values=$(gpu_query "$fields,mig.mode.current,compute_cap") || values=$(gpu_query "$fields") || return 0 # older drivers lack the last
    awk -F ', *' -v at="$GPU_PCI" '{
        printf "GPU at %s: driver %s, persistence mode %s, compute mode %s, ECC %s, power limit %s W, at most %s MHz (memory %s MHz), ", at,
            $1, $2, $3, $4, $5, $6, $7
        printf "PCIe at most generation %s x %s lanes%s\n", $8, $9,
            (NF > 9 ? ", MIG " $10 ", compute capability " $11 : "")
    }' <<<"$values"
}

GPU_SAMPLER=
# gpu_sample_begin FILE: samples the GPU every 0.5 s into FILE, until gpu_sample_end.
gpu_sample_begin() {
    local reasons fields=utilization.gpu,clocks.sm,clocks.mem,power.draw,temperature.gpu,pcie.link.gen.current,pcie.link.width.current
    [ -n "${GPU_PCI:-}" ] || return 0
    for reasons in ,clocks_event_reasons.active ,clocks_throttle_reasons.active ''; do # by the driver's age
        gpu_query "$fields$reasons" >/dev/null || continue
        timeout 900 nvidia-smi -i "$GPU_PCI" "--query-gpu=$fields$reasons" --format=csv,noheader,nounits -lms 500 >"$1" 2>/dev/null </dev/null &
        GPU_SAMPLER=$!
        return 0
    done
}
gpu_sample_end() {
    [ -n "$GPU_SAMPLER" ] || return 0
    kill "$GPU_SAMPLER" 2>/dev/null
    wait "$GPU_SAMPLER" 2>/dev/null
    GPU_SAMPLER=
}
# gpu_sample_heading; gpu_sample_row NAME FILE: rows of a table, the medians of the samples in which a kernel ran (without any: of
# all). Throttled: each reason why the clocks were lower than they may be, with its share of these samples.
gpu_sample_heading() {
    echo "| step | samples, with kernels / all | SM, MHz | memory, MHz | W | C | PCIe generation x lanes | clocks held down by |"
    echo "|---|---|---|---|---|---|---|---|"
}
gpu_sample_row() {
    awk -F ', *' -v name="$1" '
        function bit(hex, n,    digit) { # whether bit n of 0x... is set
            digit = index("0123456789abcdef", tolower(substr(hex, length(hex) - int(n / 4), 1))) - 1
            return digit > 0 && int(digit / 2 ^ (n % 4)) % 2
        }
        function median(field, from,    i, j, n, x, v) {
            for (i = 1; i <= NR; i++) {
                x = sample[i, field]
                if ((from && sample[i, 1] + 0 == 0) || x !~ /^[0-9.]+$/)
                    continue
                for (j = n++; j > 0 && v[j] > x + 0; j--)
                    v[j + 1] = v[j]
                v[j + 1] = x + 0
            }
            return n ? v[int((n + 1) / 2)] : "-"
        }
        BEGIN { split("set clocks,power cap,hardware slowdown,sync boost,temperature (software),temperature (hardware),power brake,display clocks", why, ",") }
        { for (i = 1; i <= NF; i++) sample[NR, i] = $i; busy += $1 + 0 > 0 }
        END {
            for (r = 1; r <= 8; r++) {
                held = 0
                for (i = 1; i <= NR; i++)
                    held += (!busy || sample[i, 1] + 0 > 0) && bit(sample[i, 8], r)
                if (held)
                    reasons = reasons (reasons ? ", " : "") why[r] " " int(100 * held / (busy ? busy : NR) + 0.5) " %"
            }
            printf "| %s | %d / %d | %s | %s | %s | %s | %s x %s | %s |\n", name, busy, NR, median(2, busy), median(3, busy), median(4, busy),
                median(5, busy), median(6, busy), median(7, busy), (reasons ? reasons : sample[1, 8] == "" ? "not known" : "-")
        }' "$2"
}

# gpu_processes PID...: MiB that each process has on the GPU, with " / " between; "-": not known, as in many containers.
gpu_processes() {
    local pid all text=
    all=$([ -z "${GPU_PCI:-}" ] || timeout 10 nvidia-smi -i "$GPU_PCI" --query-compute-apps=pid,used_memory --format=csv,noheader,nounits 2>/dev/null)
    for pid in "$@"; do
        text="$text / $(awk -F ', *' -v pid="$pid" '$1 == pid && $2 ~ /^[0-9]+$/ { n = $2 } END { print n == "" ? "-" : n }' <<<"$all")"
    done
    echo "${text# / }"
}

# gpu_errors: prints the driver's errors (Xid) in the kernel's log, where this user may read it.
gpu_errors() { timeout 5 dmesg 2>/dev/null | grep -a 'NVRM: Xid'; }
