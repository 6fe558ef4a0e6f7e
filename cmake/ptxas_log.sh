#!/bin/sh
# Runs a compiler; what ptxas says of registers and spills (-Xptxas -v) goes to OBJECT.ptxas, not to the terminal.
#   ptxas_log.sh COMMAND... -o OBJECT ...
# bench/gpu_static.py --verify reads these files.
object=
previous=
for word; do
    [ "$previous" = -o ] && object=$word
    previous=$word
done
[ -n "$object" ] || exec "$@"
"$@" 2>"$object.stderr"
status=$?
says='^ptxas info|^ +[0-9]+ bytes stack frame'
grep -E "$says" "$object.stderr" >"$object.ptxas"
grep -Ev "$says" "$object.stderr" >&2
rm -f "$object.stderr"
exit $status
