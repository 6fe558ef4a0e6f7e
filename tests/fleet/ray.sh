#!/bin/bash
# deploy/ray on a local cluster of three node processes. usage: ray.sh MOED MODEL SOURCE
# Ray is large, so no test installs it: set MOED_RAY_PYTHON to a Python that has ray[serve] and ray[data], or have python3 find them.
MOED=$1 MODEL=$2 SOURCE=$3
. "$(dirname "$0")/../deployment.sh"
python=${MOED_RAY_PYTHON:-python3}
"$python" -c 'import aiohttp, pyarrow, ray.serve' 2>/dev/null || skip "$python has no ray[serve,data] (docs/ray.md)"
# What a loaded machine needs: Ray gives up on slow starts after 30 s.
export RAY_raylet_start_wait_time_s=300 RAY_gcs_server_request_timeout_seconds=300 RAY_gcs_rpc_server_connect_timeout_s=100 \
    RAY_health_check_initial_delay_ms=60000 RAY_health_check_timeout_ms=60000
export RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S=300 RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S=300
export RAY_ENABLE_UV_RUN_RUNTIME_ENV=0 RAY_USAGE_STATS_ENABLED=0 PYTHONDONTWRITEBYTECODE=1
unset MOED_RUN
"$python" "$(dirname "$0")/ray_cluster.py" "$SOURCE" "$(realpath "$MOED")" "$MODEL" "$WORK" || fail "see above"
