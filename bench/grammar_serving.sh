#!/bin/bash
# Measures what a grammar costs an answer of a deployment: a schema of ten properties, on and off in turns. Off: the same number of
# tokens without a grammar. Known: the schema of the answers before. New: a schema that the worker has not seen (its title differs).
#   grammar_serving.sh BUILD MODEL [-r ROUNDS]
set -eu
MOED=$1/client/moed MODEL=$2
shift 2
ROUNDS=15
while getopts r: option; do
    case $option in r) ROUNDS=$OPTARG ;; *) exit 2 ;; esac
done
. "$(dirname "$0")/../tests/deployment.sh"
schema() { # schema TITLE
    printf '{"title": "%s", "type": "object", "properties": {"id": {"type": "integer", "minimum": 1}, "name": {"type": "string", "minLength": 1, "maxLength": 60},
      "email": {"type": "string", "format": "email"}, "born": {"type": "string", "format": "date"}, "active": {"type": "boolean"},
      "score": {"type": "number", "minimum": 0, "maximum": 100}, "role": {"enum": ["admin", "editor", "reader"]},
      "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 8}, "address": {"type": "object",
        "properties": {"street": {"type": "string"}, "zip": {"type": "string", "pattern": "^[0-9]{5}$"}}, "required": ["street", "zip"],
        "additionalProperties": false}, "notes": {"type": ["string", "null"]}}, "required": ["id", "name", "email", "born", "active", "score",
        "role", "tags", "address", "notes"], "additionalProperties": false}' "$1"
}
counters() { for name in grammar_seconds decode_seconds grammar_masks generated_tokens; do metric worker moed_worker_${name}_total; done | tr '\n' ' '; }
median() { sort -g "$1" | awk '{ v[NR] = $1 } END { printf "%.1f", NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }
value() { sed -n "s/.*\"$1\": \([0-9.]*\).*/\1/p" "$WORK/json"; }
# ask NAME OPTIONS...: one answer; its decode time a token goes to NAME, and where a grammar holds it, its share of that time to NAME.share.
ask() {
    name=$1
    shift
    before=$(counters)
    "$MOED" run --temp 0.8 --json "$@" "Once upon a time" > "$WORK/json"
    tokens=$(value generated_tokens)
    awk -v s="$(value decode_s)" -v n="$tokens" 'BEGIN { print 1e6 * s / (n - 1) }' >> "$WORK/$name"
    echo "$before $(counters)" | awk '{ print 1e6 * ($5 - $1) / ($8 - $4), 100 * ($5 - $1) / ($6 - $2), ($7 - $3) / ($8 - $4) }' >> "$WORK/$name.share"
}
report() {
    printf '%s: %s us a token' "$1" "$(median "$WORK/$1")"
    [ "$1" = off ] || for column in "1 us_in_the_grammar" "2 percent_of_the_time" "3 masks_a_token"; do
        cut -d' ' -f"${column%% *}" "$WORK/$1.share" > "$WORK/column"
        printf ', %s %s' "$(sort -g "$WORK/column" | awk '{ v[NR] = $1 } END { printf "%.2f", v[int((NR + 1) / 2)] }')" "$(echo "${column#* }" | tr _ ' ')"
    done
    echo
}
"$MOED" up "$MODEL" --ctx 2048 > /dev/null 2>&1
for seed in 1 2 3; do "$MOED" run --temp 0.8 --seed $seed --json-schema "$(schema known)" "Once upon a time" > /dev/null; done
for round in $(seq "$ROUNDS"); do
    ask known --seed "$round" --json-schema "$(schema known)"
    ask off --seed "$round" -n "$tokens" --ignore-end
    ask new --seed "$round" --json-schema "$(schema "new $round")"
done
for name in off known new; do report $name; done
