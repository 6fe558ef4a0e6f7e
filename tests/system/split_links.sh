#!/bin/bash
# A split model in Hugging Face's cache, whose files are links to blobs with other names: moed up, reload and --models find all parts.
# usage: split_links.sh MOED
MOED=$1
. "$(dirname "$0")/../deployment.sh"
unset MOED_RUN # --models starts several deployments
export XDG_RUNTIME_DIR=$WORK/r
mkdir -m 700 "$XDG_RUNTIME_DIR"
end_all() {
    status=$?
    for name in links router part; do "$MOED" down $name > /dev/null 2>&1 || true; done
    (exit $status)
    end
}
trap end_all EXIT

mkdir -p "$WORK/blobs" "$WORK/snapshots/main"
"$MOED" mkmodel --split 3 --seed 5 -o "$WORK/blobs/part" > /dev/null || fail "moed mkmodel"
for i in 1 2 3; do
    mv "$WORK/blobs/part-0000$i-of-00003.gguf" "$WORK/blobs/hash-of-$i"
    touch -d '1 minute ago' "$WORK/blobs/hash-of-$i"
    ln -s "../../blobs/hash-of-$i" "$WORK/snapshots/main/part-0000$i-of-00003.gguf"
done
first=$WORK/snapshots/main/part-00001-of-00003.gguf

say "moed up, also by a path that is not absolute; moed reload"
start_deployment "$first" --name links --kv-cache 64M
"$MOED" run --name links -n 2 --ignore-end a > /dev/null || fail "no answer"
"$MOED" reload --name links "$first" > "$WORK/up" 2>&1 || fail "reload: $(cat "$WORK/up")"
"$MOED" run --name links -n 2 --ignore-end a > /dev/null || fail "no answer after the reload"
"$MOED" down links > /dev/null
(cd "$WORK/snapshots" && start_deployment main/part-00001-of-00003.gguf --name links --kv-cache 64M)
"$MOED" down links > /dev/null
if "$(dirname "$MOED")/../deploy/moed-supervise" --run "$WORK/none" --model "$WORK/none.gguf" 2> "$WORK/up"; then fail "a model that is not there is accepted"; fi
grep -q 'cannot find the model' "$WORK/up" || fail "a model that is not there: $(cat "$WORK/up")"

say "moed up --models"
start_deployment --models "$WORK/snapshots" --http 127.0.0.1:0 --name router
"$MOED" models --name router --load part > "$WORK/up" 2>&1 || fail "$(cat "$WORK/up")"
"$MOED" run --name part -n 2 --ignore-end a > /dev/null || fail "no answer of a model of the folder"
say ok
