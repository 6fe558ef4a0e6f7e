#!/bin/bash
# `moed inspect` reports the facts of each golden model that inspect.facts lists.
#   inspect.sh MOED DIRECTORY
set -eu
MOED=$1 DIRECTORY=$2
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }
models='' facts=0
while read -r name rest; do
    case $name in '#' | '') continue ;; esac
    model=$DIRECTORY/${name%:}.gguf
    facts=$((facts + 1))
    if [ "$name" != "${name%:}" ]; then
        "$MOED" inspect "$model" | tr -s '\n ' ' ' | grep -qF -e "$rest" || fail "$name '$rest' is not in: $("$MOED" inspect "$model")"
        continue
    fi
    models="$models$name "
    json=$("$MOED" inspect --json "$model")
    for fact in $rest; do
        key=${fact%%=*} want=${fact#*=}
        case $json in
        *"\"$key\": $want"[,\}]* | *"\"$key\": \"$want\""[,\}]*) ;;
        *) fail "$name: expected $fact, got: $json" ;;
        esac
    done
done < "$DIRECTORY/inspect.facts"
# Every model has facts. The counts of tensors by type add up to the list of tensors.
for model in "$DIRECTORY"/*.gguf; do
    name=$(basename "$model" .gguf)
    case $name in vocab-* | quant-*) continue ;; esac
    case " $models" in *" $name "*) ;; *) fail "inspect.facts has no line for $name" ;; esac
    "$MOED" inspect --tensors "$model" | awk -v name="$name" '
        /^[^ ]/ { types_here = $1 == "tensors" }
        types_here { for (i = 1; i <= NF; i++) if ($i ~ /^[0-9]+$/) { counted += $i; types++ } }
        listing && NF { listed++ }
        /^tensor  / { listing = 1 }
        END { if (counted != listed || types < 1) { print "FAILED: " name ": " counted " tensors by type, " listed " listed" > "/dev/stderr"; exit 1 } }'
done
echo "ok: $facts lines of facts"
