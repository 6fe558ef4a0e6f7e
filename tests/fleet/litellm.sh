#!/bin/bash
# deploy/routers/litellm.yaml in the real LiteLLM proxy, before two replicas. usage: litellm.sh MOED MODEL
# LiteLLM is large, so no test installs it: MOED_LITELLM=PROGRAM, or litellm is in PATH (pip install 'litellm[proxy]').
MOED=$1 MODEL=$2
. "$(dirname "$0")/replicas.sh"
litellm=${MOED_LITELLM:-litellm}
command -v "$litellm" >/dev/null || skip "$litellm is not installed (litellm[proxy])"
printf 'key-of-moed\n' >"$WORK/keys"
chmod 600 "$WORK/keys"
start_replicas 2 --ctx 512 --parallel 8 --queue 200 --api-key-file "$WORK/keys"
port=$(free_port)
sed -e "s/127.0.0.1:8081/127.0.0.1:${PORTS[0]}/; s/127.0.0.1:8082/127.0.0.1:${PORTS[1]}/" \
    "$(dirname "$0")/../../deploy/routers/litellm.yaml" >"$WORK/litellm.yaml"
MOED_API_KEY=key-of-moed LITELLM_MASTER_KEY=sk-key-of-litellm LITELLM_LOCAL_MODEL_COST_MAP=True LITELLM_TELEMETRY=False \
    "$litellm" --config "$WORK/litellm.yaml" --host 127.0.0.1 --port "$port" >"$WORK/router.log" 2>&1 &
router=$!
trap 'set +e -- $?; kill $router 2>/dev/null; (exit $1); end_replicas' EXIT
wait_until 240 curl -sf "http://127.0.0.1:$port/health/liveliness" || fail "LiteLLM does not serve: $(tail -n 20 "$WORK/router.log")"
python3 "$(dirname "$0")/litellm_load.py" "$port" "${RUNS[@]}" "${PORTS[@]}" || {
    tail -n 30 "$WORK/router.log" >&2
    fail "see above"
}
say ok
