#!/bin/bash
# Compares the order of policies in a deployment with their order in a replay.
#   live_order.sh MOED MOED_REPLAY TEXT [-r ROUNDS] [-v "10 25 50"] [-n TOKENS] [-d DEVICE] [-p "POLICIES"] MODEL...
# For each model and share of the experts that fits the emulated device (a cell), the policies take turns in replay_check.sh, ROUNDS
# times; a round's policies are replayed with the same costs. A machine is not always equally fast, so a time counts relative to the mean
# of its round's policies, and the median over the rounds is taken of that. Prints a layer's experts' time, live and replayed, and for
# each cell whether the order is the same: two policies are in order if their live times are, or differ by no more than 2 %, or if their
# replayed times differ by no more than 2 %.
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
            "$check" "$moed" "$replay" "$model" "$text" -c -d "$device" -v "$share" -n "$tokens" $policies |
                sed -n "3,\$s/^/| $(basename "$model" .gguf) | $share | $round /p" >>"$rows"
        done
    done
done

awk -F'|' '
    function median(v, n,    i, j, t) {
        for (i = 2; i <= n; i++)
            for (j = i; j > 1 && v[j] < v[j - 1]; j--) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
        return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
    }
    # the mean of the policies of a round
    function mean(cell, kind, round,    i, sum) {
        for (i = 1; i <= n_names; i++) sum += log(value[cell, kind, round, names[i]])
        return exp(sum / n_names)
    }
    function typical(cell, kind, name,    round, of_mean, means) {
        for (round = 0; round < n_rounds; round++) {
            means[round + 1] = mean(cell, kind, round)
            of_mean[round + 1] = value[cell, kind, round, name] / means[round + 1]
        }
        return median(of_mean, n_rounds) * median(means, n_rounds)
    }
    { gsub(/ /, "") }
    {
        cell = $2 " | " $3
        if (!(cell in seen)) { seen[cell] = 1; cells[++n_cells] = cell }
        if (!($5 in known)) { known[$5] = 1; names[++n_names] = $5 }
        split($9, us, ",")
        value[cell, "live", $4, $5] = us[1]
        value[cell, "replay", $4, $5] = us[2]
        n_rounds = $4 + 1 > n_rounds ? $4 + 1 : n_rounds
    }
    END {
        print "| model | fits, % | policy | a layer, us, live | replayed |"
        print "|---|---|---|---|---|"
        for (c = 1; c <= n_cells; c++)
            for (i = 1; i <= n_names; i++) {
                live[c, i] = typical(cells[c], "live", names[i])
                replayed[c, i] = typical(cells[c], "replay", names[i])
                printf "| %s | %s | %.1f | %.1f |\n", cells[c], names[i], live[c, i], replayed[c, i]
            }
        print ""
        for (c = 1; c <= n_cells; c++) {
            out = ""
            for (i = 1; i <= n_names; i++)
                for (j = 1; j <= n_names; j++)
                    if (replayed[c, i] / replayed[c, j] < 1 / 1.02 && live[c, i] / live[c, j] > 1.02)
                        out = out sprintf("; %s before %s (%.2f) is after it (%.2f)", names[i], names[j], replayed[c, i] / replayed[c, j],
                                          live[c, i] / live[c, j])
            same += out == ""
            print cells[c] ": " (out == "" ? "the same order" : "in replay" substr(out, 2))
        }
        print "the same order in " same " cells of " n_cells
    }' "$rows"
