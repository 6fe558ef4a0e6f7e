#!/bin/bash
# A wheel of client/python: it builds without the network, has the header, works where the sources are not in sight, and a strict checker
# of types accepts it and a program that uses it. usage: wheel_test.sh MOED MODEL LIBMOED SOURCE
MOED=$1 MODEL=$2 LIBMOED=$3 SOURCE=$4
. "$(dirname "$0")/../deployment.sh"
python=/usr/bin/python3
for module in cffi wheel setuptools; do
    "$python" -c "import $module" 2> /dev/null || skip "no $python with $module (package python3-$module)"
done
export PYTHONDONTWRITEBYTECODE=1
cp -r "$SOURCE/client" "$WORK/client" # setuptools writes beside the sources
# what pip calls
(cd "$WORK/client/python" && "$python" -c 'import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])' "$WORK") \
    > "$WORK/build" 2>&1 || fail "no wheel: $(tail -n 5 "$WORK/build")"
rm -rf "$WORK/client"
wheel=$(echo "$WORK"/moed-*-py3-none-any.whl)
[ -f "$wheel" ] || fail "not a wheel for every Python: $(ls "$WORK")"
"$python" -m zipfile -e "$wheel" "$WORK/site" || fail "the wheel cannot be unpacked"
for file in moed.h py.typed chat.py; do
    [ -f "$WORK/site/moed/$file" ] || fail "moed/$file is not in the wheel"
done
"$MOED" up "$MODEL" > /dev/null 2>&1 || fail "moed up"
cd "$WORK" || fail "cd"
cat > program.py <<'END'
import moed


def ask(question: str) -> str:
    with moed.Session() as session, moed.Chat(session) as chat:
        for part in chat.stream(question, temperature=0):
            text: str = part.text
            print(text, end="")
        tokens: list[int] = session.tokenize(question)
        answer: moed.ChatAnswer = chat.ask("And now?", max_tokens=3)
        return answer.content + str(len(tokens))


ask("What is 2 + 3?")
END
answer=$(MOED_LIBRARY=$LIBMOED PYTHONPATH=$WORK/site "$python" program.py) || fail "the program fails with the wheel"
[ "$answer" = "2 + 3 = 5." ] || fail "the program prints: $answer"
if ! command -v mypy > /dev/null; then
    say "ok, without a check of the types: mypy is not here (section check of deploy/packages)"
    exit 0
fi
types() { MYPYPATH=$WORK/site mypy --strict --ignore-missing-imports --cache-dir "$WORK/cache" "$@" > types 2>&1; }
types site/moed program.py || fail "mypy: $(cat types)"
sed 's/text: str = /text: int = /' program.py > wrong.py
if types wrong.py; then fail "mypy sees no types"; fi
say ok
