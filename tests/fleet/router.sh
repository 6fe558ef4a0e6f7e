#!/bin/bash
# A router of deploy/routers before two replicas: conversations stay, kills lose nothing that had not begun, a drained replica gets
# nothing new. usage: router.sh MOED MODEL haproxy|nginx [SECONDS]
MOED=$1 MODEL=$2 ROUTER=$3 LONG=${4:-6}
. "$(dirname "$0")/replicas.sh"
PATH=$PATH:/usr/sbin
command -v "$ROUTER" >/dev/null || skip "$ROUTER is not installed"
configurations=$(cd "$(dirname "$0")/../../deploy/routers" && pwd)
echo "trusted-proxies = 127.0.0.1" >"$WORK/http.conf"
start_replicas 2 --http-config "$WORK/http.conf" --ctx 8192 --parallel 8 --queue 200
port=$(free_port) metrics=$(free_port)

# The shipped configuration, with this test's addresses.
case $ROUTER in
haproxy) file=haproxy.cfg start=(haproxy -db -f "$WORK/haproxy.cfg") ;;
nginx) file=nginx.conf start=(nginx -c "$WORK/nginx.conf" -g "daemon off;") ;;
esac
sed -e "s/127.0.0.1:8081/127.0.0.1:${PORTS[0]}/; s/127.0.0.1:8082/127.0.0.1:${PORTS[1]}/; s/127.0.0.1:8080/127.0.0.1:$port/; s/127.0.0.1:8404/127.0.0.1:$metrics/" \
    -e "s|/tmp/moed-|$WORK/moed-|" "$configurations/$file" >"$WORK/$file"
"${start[@]}" >"$WORK/router.log" 2>&1 &
router=$!
trap 'set +e -- $?; kill $router 2>/dev/null; (exit $1); end_replicas' EXIT
wait_until 20 curl -sf "http://127.0.0.1:$port/health" || fail "$ROUTER does not serve: $(cat "$WORK/router.log")"
# Of 127.0.0.2, whatever that client writes itself.
curl -sf --interface 127.0.0.2 -H "X-Forwarded-For: 192.0.2.7" "http://127.0.0.1:$port/v1/models" >"$WORK/models" || fail "$ROUTER: no models"
has_client() { grep -q 'GET /v1/models 200 .* client=127\.0\.0\.2$' "${RUNS[@]/%//http.log}"; }
wait_until 20 has_client || fail "$ROUTER: the client's address: $(grep 'GET /v1/models' "${RUNS[@]/%//http.log}")"
if [ "$ROUTER" = haproxy ]; then
    curl -sf "http://127.0.0.1:$metrics/metrics" | grep '^haproxy_server_status{proxy="moed",server="r1",state="UP"} 1$' >/dev/null || fail "HAProxy's metrics"
fi
python3 "$(dirname "$0")/router_load.py" "$ROUTER" "$port" "$WORK" "$LONG" "${RUNS[@]}" "${PORTS[@]}" || {
    tail -n 300 "$WORK/router.log" >&2
    fail "see above"
}
say ok
