#!/bin/bash
# Checks that the tables of docs/metrics.md name every metric of the sources, and no other. usage: metrics.sh ROOT
set -eu
cd "${1:?usage: metrics.sh ROOT}"
in_sources() {
    grep -rhoE --include='*.c' --include='*.h' '"moed_(memd|worker|cpuexec|http|models|supervise)_[a-z0-9_]+"' memd worker cpuexec client lib deploy |
        tr -d '"' | sort -u
}
in_docs() { grep -hE '^\|' docs/metrics.md | grep -oE 'moed_(memd|worker|cpuexec|http|models|supervise)_[a-z0-9_]+' | sort -u; }
[ "$(in_sources | wc -l)" -gt 80 ] || { echo "found only $(in_sources | wc -l) metrics in the sources" >&2; exit 1; }
missing=$(comm -23 <(in_sources) <(in_docs)) gone=$(comm -13 <(in_sources) <(in_docs))
[ -z "$missing" ] || printf 'docs/metrics.md does not name:\n%s\n' "$missing" >&2
[ -z "$gone" ] || printf 'docs/metrics.md names what no source registers:\n%s\n' "$gone" >&2
[ -z "$missing$gone" ]
