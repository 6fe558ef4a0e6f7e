#!/bin/bash
# The demo model, as `moed up demo` finds it: verbs take the word, its answers can be checked, its text is text.
MOED=$1 MODEL=$2
. "$(dirname "$0")/../deployment.sh"

# The word, from any directory, unless there is a file of that name.
golden=$(cd "$(dirname "$0")/../golden" && pwd)
cd "$WORK"
"$MOED" inspect --json demo > inspected
grep -q "\"path\": \"$(readlink -f "$MODEL")\"" inspected || fail "demo is $(cat inspected), expected $MODEL"
grep -q '"architecture": "qwen3moe"' inspected || fail "the demo is: $(cat inspected)"
[ "$("$MOED" tokenize --vocab demo --json "A small cat.")" = "$("$MOED" tokenize --vocab "$MODEL" --json "A small cat.")" ] ||
    fail "the demo's vocabulary is another one"
mkdir other
cp "$golden/qwen3moe.gguf" other/demo
(cd other && "$MOED" inspect demo | grep -q 'name  *qwen3moe') || fail "a file called demo is not taken"

"$MOED" up demo > /dev/null 2>&1 || fail "moed up demo: exit code $?"
"$MOED" ps | grep -q 'demo.gguf' || fail "ps does not name it: $("$MOED" ps)"

# Questions of its training's kinds (tools/train/generate.py). These it knows by heart; evaluate.py counts the others.
ask() { # ask QUESTION WORDS: of the answer
    answer=$("$MOED" run --chat -n 60 "$1")
    case $answer in *"$2"*) ;; *) fail "'$1': '$answer', expected '... $2 ...'" ;; esac
}
ask "Who are you?" "the moed demo, a small language model"
ask "What can you do?" "tell short stories"
ask "Thank you!" "You are welcome."
# The kind of answer, right or not.
ask "Which day comes after Friday?" "day after"
ask "What is the capital of France?" "The capital of"
ask "What is 2 plus 3?" " + 3 = "

# A story has sentences, and its own end.
"$MOED" run --chat --json "Tell me a story about a small cat." > story
grep -q '"finish_reason": "end"' story || fail "the story does not end: $(cat story)"
[ "$(sed 's/.*"text": "//; s/", "tokens".*//' story | grep -o '[a-z]\.' | wc -l)" -ge 4 ] || fail "no sentences: $(cat story)"

# Plain English in less than 3 bits a byte: a model that knows only how frequent letters are needs more than 4.
cat > text <<'END'
The people of the village went up to the house, and they saw that the door was open. Then the old man said to them:
Come in and sit down, for the night is cold. So they came in and sat down by the fire, and he gave them bread and
water. In the morning the king sent a message to all the cities of the land, and the people heard it and were glad.
END
"$MOED" perplexity demo -f text --json > measured
bits=$(sed -n 's/.*"bits_per_byte": *\([0-9.]*\).*/\1/p' measured)
awk -v bits="$bits" 'BEGIN { exit !(bits > 0.5 && bits < 3) }' || fail "bits a byte of plain English: $(cat measured)"
say "ok: $bits bits a byte"
