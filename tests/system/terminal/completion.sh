#!/bin/bash
# Completion for fish and zsh, those of them that are installed. usage: completion.sh MOED FOLDER_OF_BENCH SOURCES
set -eu
WORK=$(mktemp -d "${TMPDIR:-/tmp}/moed-test-XXXXXX")
trap 'rm -rf "$WORK"' EXIT
skip() { printf 'skipped: %s\n' "$*" >&2; exit 77; }
. "$(dirname "$0")/python.sh"
unset MOED_RUN
status=0
"$PYTHON" "$(dirname "$0")/completion.py" "$(dirname "$1")" "$2" "$3" "$WORK" || status=$?
[ $status -ne 77 ] || skip "neither fish nor zsh is installed"
exit $status
