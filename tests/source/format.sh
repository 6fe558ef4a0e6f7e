#!/bin/bash
# Checks the format of the sources with .clang-format and the clang-format of Debian 12. usage: format.sh ROOT
set -eu
cd "${1:?usage: format.sh ROOT}"
version=$(clang-format --version 2>/dev/null | sed -n 's/.*version \([0-9]*\).*/\1/p')
[ "$version" = 14 ] || { echo "skipped: clang-format 14 is not installed (found: ${version:-none})" >&2; exit 77; }
mapfile -t files < <(find bench client cpuexec deploy lib memd tests worker \
    \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cpp' \) | sort)
[ ${#files[@]} -gt 500 ] || { echo "found only ${#files[@]} sources" >&2; exit 1; }
wrong=$(clang-format --dry-run -Werror "${files[@]}" 2>&1 | grep 'error:' || true)
[ -z "$wrong" ] || { head -n 40 <<<"$wrong"; exit 1; }
echo "${#files[@]} sources are formatted"
