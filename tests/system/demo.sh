#!/bin/bash
# The demo model that `moed up demo` finds: the verbs accept the name `demo`, the model answers known questions, and it predicts plain
# English well.
MOED=$1 MODEL=$2
. "$(dirname "$0")/../deployment.sh"

# The name `demo` works in any directory that has no file of that name.
golden=$(cd "$(dirname "$0")/../golden" && pwd)
cd "$WORK"
"$MOED" inspect --json demo > inspected
grep -q "\"path\": \"$(readlink -f "$MODEL")\"" inspected || fail "demo is $(cat inspected), expected $MODEL"
grep -q '"architecture": "qwen3moe"' inspected || fail "the demo is: $(cat inspected)"
[ "$("$MOED" tokenize --vocab demo --json "A small cat.")" = "$("$MOED" tokenize --vocab "$MODEL" --json "A small cat.")" ] ||
    fail "moed tokenize --vocab demo uses another vocabulary"
mkdir other
cp "$golden/qwen3moe.gguf" other/demo
(cd other && "$MOED" inspect demo | grep -q 'name  *qwen3moe') || fail "moed ignores a file called demo"

start_deployment demo
grep -q ": deployment of .*demo.gguf in $RUN " "$RUN/supervise.log" || fail "with MOED_RUN the log has a name: $(head -n 3 "$RUN/supervise.log")"
"$MOED" ps | grep -q 'demo.gguf' || fail "ps does not name demo.gguf: $("$MOED" ps)"

# Questions of the kinds that the training data has (tools/train/generate.py). The training data contains these three; evaluate.py
# counts right answers to other questions.
ask() { # ask QUESTION WORDS: the answer contains WORDS
    answer=$("$MOED" run --chat --temp 0 -n 60 "$1")
    case $answer in *"$2"*) ;; *) fail "'$1': '$answer', expected '... $2 ...'" ;; esac
}
ask "Who are you?" "the moed demo, a small language model"
ask "What can you do?" "tell short stories"
ask "Thank you!" "You are welcome."
# These answers have the right form; their facts may be wrong.
ask "Which day comes after Friday?" "day after"
ask "What is the capital of France?" "The capital of"
ask "What is 2 plus 3?" " + 3 = "

# A story has sentences, and the model ends it.
"$MOED" run --chat --temp 0 --json "Tell me a story about a small cat." > story
grep -q '"finish_reason": "end"' story || fail "the story does not end: $(cat story)"
[ "$(sed 's/.*"text": "//; s/", "tokens".*//' story | grep -o '[a-z]\.' | wc -l)" -ge 4 ] || fail "no sentences: $(cat story)"

# The texts of special tokens come where they are asked for; a bias may name a token by its text.
special() { "$MOED" run -n 2 --ignore-end --bias '<|im_end|>=1000000' "$@" x; }
[ "$(special --show-special)" = "<|im_end|><|im_end|>" ] && [ -z "$(special)" ] || fail "texts of special tokens: $(special --show-special), $(special)"

# The model needs less than 3 bits a byte for plain English. A model of letter frequencies needs more than 4.
cat > text <<'END'
The people of the village went up to the house, and they saw that the door was open. Then the old man said to them:
Come in and sit down, for the night is cold. So they came in and sat down by the fire, and he gave them bread and
water. In the morning the king sent a message to all the cities of the land, and the people heard it and were glad.
END
"$MOED" perplexity demo -f text --json > measured
bits=$(sed -n 's/.*"bits_per_byte": *\([0-9.]*\).*/\1/p' measured)
awk -v bits="$bits" 'BEGIN { exit !(bits > 0.5 && bits < 3) }' || fail "bits a byte of plain English: $(cat measured)"
say "ok: $bits bits a byte"
