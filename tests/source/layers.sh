#!/bin/bash
# Checks every #include "..." of the sources against the table of layers (layers.txt). A folder includes headers of the folders below
# it, and none of another process. What the table allows and no include needs is a fault, too. usage: layers.sh ROOT [TABLE]
set -eu
root=${1:?usage: layers.sh ROOT [TABLE]}
table=$(readlink -f "${2:-$(dirname "${BASH_SOURCE[0]}")/layers.txt}")
cd "$root"
find lib memd worker cpuexec client deploy bench \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \) -print0 |
    xargs -0 grep -HoE '^[[:space:]]*#include "[^"]+"' |
    awk -v table="$table" '
        function folder(path) { sub(/\/[^\/]*$/, "", path); return path }
        # The folder of an included header: the folder of the file, a folder of a process, or one of lib.
        function target(file, header) {
            if (header ~ /\.pb-c\.h$/) return "proto"
            if (header !~ /\//) return folder(file)
            if (header ~ /^(worker|memd|cpuexec|client|bench|deploy|tests|lib)\//) return folder(header)
            return "lib/" folder(header)
        }
        function allowed(from, to,    i, n, list) {
            if (from == to) return 1
            n = split(may[from], list, " ")
            for (i = 1; i <= n; i++)
                if (list[i] == to || list[i] ~ /\/\.\.\.$/ && index(to, substr(list[i], 1, length(list[i]) - 3)) == 1) {
                    used[from, list[i]] = 1
                    return 1
                }
            return 0
        }
        BEGIN {
            while ((getline line < table) > 0) {
                sub(/#.*/, "", line)
                if (split(line, part, ":") < 1 || line !~ /:/) continue
                gsub(/ /, "", part[1])
                may[part[1]] = part[2]
                known[part[1]] = 1
            }
        }
        {
            file = $0; sub(/:.*/, "", file)
            header = $0; sub(/^[^"]*"/, "", header); sub(/".*/, "", header)
            from = folder(file); to = target(file, header); n++
            if (!(from in known)) {
                if (!(from in reported)) { print from ": not in the table of layers (" table ")"; bad++ }
                reported[from] = 1
            } else if (!allowed(from, to)) {
                print file " includes \"" header "\": " from " may not include from " to; bad++
            }
        }
        END {
            for (from in known) {
                m = split(may[from], list, " ")
                for (i = 1; i <= m; i++)
                    if (!((from, list[i]) in used)) { print from " may include from " list[i] ", and does not (" table ")"; bad++ }
            }
            if (n < 100) { print "found only " n + 0 " includes in '"$root"'"; exit 1 }
            print n " includes, " bad + 0 " against the layers"
            exit bad > 0
        }'
