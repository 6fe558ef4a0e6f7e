#!/bin/bash
# client/python on a real deployment and a real trace. usage: package_test.sh MOED MODEL LIBMOED SOURCE
MOED=$1 MODEL=$2 LIBMOED=$3 SOURCE=$4
. "$(dirname "$0")/../deployment.sh"
python=
for candidate in /usr/bin/python3 python3; do
    if "$candidate" -c 'import cffi, numpy' 2>/dev/null; then python=$candidate; break; fi
done
[ -n "$python" ] || skip "no python3 with cffi and numpy (python3-cffi, python3-numpy)"
"$MOED" up "$MODEL" --ctx 16384 > /dev/null 2>&1 || fail "moed up" # answers that are cancelled last seconds
head -c 3000 "$0" > "$WORK/text"
"$MOED" profile "$MODEL" --text "$WORK/text" --context 100 --hidden 1/4 -o "$WORK/trace" > /dev/null 2>&1 || fail "moed profile"
"$MOED" inspect --json "$WORK/trace" > "$WORK/facts"
"$MOED" run --temp 0 -n 24 "Once upon a time" > "$WORK/answer" 2> /dev/null || fail "moed run"
export MOED_LIBRARY=$LIBMOED PYTHONPATH=$SOURCE/client/python PYTHONDONTWRITEBYTECODE=1
"$python" "$SOURCE/tests/python/package_test.py" "$WORK/trace" "$WORK/facts" "$WORK/answer" || fail "package_test.py"
