#!/bin/bash
# Compares the order of policies in a deployment with their order in a replay.
#   live_order.sh MOED MOED_REPLAY TEXT [-r ROUNDS] [-v "10 25 50"] [-n TOKENS] [-d DEVICE] [-p "POLICIES"] MODEL...
# For each model and share of the experts that fits the emulated device (a cell), the policies take turns in replay_check.sh, ROUNDS
# times. Prints the medians of a layer's experts' time, live and replayed, and for each cell whether the order is the same: two policies
# are in order if their live times are, or differ by no more than 2 %, or if their replayed times differ by no more than 2 %.
set -eu
moed=$1 replay=$2 text=$3
shift 3
rounds=3 shares="10 25 50" tokens=200 device=link=2G policies="moed qstar threshold score lru"
while getopts "r:v:n:d:p:" option; do
    case $option in
    r) rounds=$OPTARG ;;
    v) shares=$OPTARG ;;
    n) tokens=$OPTARG ;;
    d) device=$OPTARG ;;
    p) policies=$OPTARG ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
check=$(dirname "$0")/replay_check.sh
rows=$(mktemp)
trap 'rm -f "$rows"' EXIT

for model in "$@"; do
    for share in $shares; do
        for ((round = 0; round < rounds; round++)); do
            # shellcheck disable=SC2086
            "$check" "$moed" "$replay" "$model" "$text" -d "$device" -v "$share" -n "$tokens" $policies |
                sed -n "3,\$s/^/| $(basename "$model" .gguf) | $share /p" >>"$rows"
        done
    done
done

awk -F'|' '
    function median(key,    n, i, j, t, v) {
        n = count[key]
        for (i = 1; i <= n; i++) v[i] = value[key, i]
        for (i = 2; i <= n; i++)
            for (j = i; j > 1 && v[j] < v[j - 1]; j--) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
        return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
    }
    function add(key, x) { value[key, ++count[key]] = x }
    { gsub(/ /, "") }
    {
        cell = $2 " | " $3
        if (!(cell in seen)) { seen[cell] = 1; cells[++n_cells] = cell }
        if (!($4 in known)) { known[$4] = 1; names[++n_names] = $4 }
        split($8, us, ",")
        add(cell "live" $4, us[1])
        add(cell "replay" $4, us[2])
    }
    END {
        print "| model | fits, % | policy | a layer, us, live | replayed |"
        print "|---|---|---|---|---|"
        for (c = 1; c <= n_cells; c++)
            for (i = 1; i <= n_names; i++)
                printf "| %s | %s | %.1f | %.1f |\n", cells[c], names[i], median(cells[c] "live" names[i]), median(cells[c] "replay" names[i])
        print ""
        for (c = 1; c <= n_cells; c++) {
            out = ""
            for (i = 1; i <= n_names; i++)
                for (j = 1; j <= n_names; j++) {
                    live = median(cells[c] "live" names[i]) / median(cells[c] "live" names[j])
                    replayed = median(cells[c] "replay" names[i]) / median(cells[c] "replay" names[j])
                    if (replayed < 1 / 1.02 && live > 1.02)
                        out = out sprintf("; %s before %s (%.2f) is after it (%.2f)", names[i], names[j], replayed, live)
                }
            same += out == ""
            print cells[c] ": " (out == "" ? "the same order" : "in replay" substr(out, 2))
        }
        print "the same order in " same " cells of " n_cells
    }' "$rows"
