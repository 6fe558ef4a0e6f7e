#!/bin/bash
# Each configuration file in deploy/ says which test runs it in the real program that it is for ("Run by PROGRAM in TEST"), or that nobody
# has ("NOT RUN: why"). The tests that are named exist. usage: deploy_files.sh SOURCE
set -eu
cd "$1"
status=0
while read -r file; do
    said=$(grep -oE 'Run by .* (in|by) [^ ]*|NOT RUN\b.*: .+' "$file") || { echo "$file: neither 'Run by PROGRAM in TEST' nor 'NOT RUN: why'" >&2; status=1; continue; }
    for test in $(grep -o 'tests/[a-z_/.0-9]*[a-z]' <<<"$said"); do
        [ -x "$test" ] || { echo "$file: there is no $test" >&2; status=1; }
    done
done < <(find deploy -name '*.yaml' -o -name '*.yml' -o -name '*.cfg' -o -name '*.conf' -o -name '*.json' -o -name Containerfile -o -name '*.service.in' -o -name '*.target.in' | sort)
exit $status
