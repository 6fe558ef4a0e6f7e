#!/bin/bash
# Checks that no file uses a replaced word (words.txt) or has the marks of an unfinished merge. usage: words.sh ROOT
set -eu
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "${1:?usage: words.sh ROOT}"
bad=0
while IFS=$'\t' read -r word pattern; do
    case $word in '' | \#*) continue ;; esac
    found=$(grep -rnIE --exclude-dir=.git --exclude-dir=build --exclude-dir=corpus --exclude=CHANGELOG.md \
        --exclude=words.txt --exclude=stories.py -- "$pattern" . || true)
    [ -z "$found" ] || { printf '%s\n' "\"$word\" is the word for this:" "$found" | cut -c 1-160 | head -n 30; bad=1; }
done < "$here/words.txt"
found=$(grep -rnI --exclude-dir=.git --exclude-dir=build --exclude-dir=corpus -e '^<<<<<<< ' -e '^>>>>>>> ' . || true)
[ -z "$found" ] || { printf '%s\n' "an unfinished merge:" "$found" | cut -c 1-160; bad=1; }
exit $bad
