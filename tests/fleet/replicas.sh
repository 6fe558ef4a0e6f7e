# Two deployments as replicas, for the tests of this folder. A test sources this file as it would tests/deployment.sh; then
# start_replicas COUNT OPTIONS... starts them. ${RUNS[i]} is the runtime directory of a replica, ${PORTS[i]} the port of its moed-http.
. "$(dirname "${BASH_SOURCE[0]}")/../deployment.sh"
RUNS=() PORTS=()

end_replicas() {
    status=$?
    set +e # `end` follows a failure, too
    local run
    for run in "${RUNS[@]}"; do
        [ $status -eq 0 ] || [ $status -eq 77 ] || tail -n 5 "$run"/*.log >&2 || true
        MOED_RUN=$run "$MOED" down >/dev/null 2>&1 || true
    done
    (exit $status)
    end
}
trap end_replicas EXIT

start_replicas() {
    local count=$1 i run
    shift
    for ((i = 0; i < count; i++)); do
        run=$WORK/replica$i
        RUNS+=("$run")
        MOED_RUN=$run "$MOED" up "$MODEL" --http 127.0.0.1:0 --kv-cache 512M "$@" >"$WORK/up" 2>&1 || fail "replica $i: $(cat "$WORK/up")"
        PORTS+=("$(port_of "$run/http.log")")
    done
}

# free_port: prints a port that nobody uses now.
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
