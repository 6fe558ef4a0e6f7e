# Sets PYTHON to a Python with pexpect and pyte; the test is skipped where there is none.
PYTHON=
for candidate in python3 /usr/bin/python3; do
    [ -n "$PYTHON" ] || ! "$candidate" -c 'import pexpect, pyte' 2> /dev/null || PYTHON=$candidate
done
[ -n "$PYTHON" ] || skip "no Python with pexpect and pyte (packages python3-pexpect, python3-pyte)"
export PYTHONDONTWRITEBYTECODE=1
