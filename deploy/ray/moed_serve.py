#!/usr/bin/env python3
"""Serves a model on a Ray cluster: one moed deployment a node, behind one address. docs/ray.md describes it.

    python3 moed_serve.py --model /models/model.gguf

It joins the cluster of $RAY_ADDRESS or of this machine (`ray start`), or starts one of this machine only, and stays until Ctrl-C. What
follows `--` are options of `moed up`."""
from __future__ import annotations

import argparse
import os
import signal
import sys
from typing import Any, cast

import ray
from ray import serve
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy, HTTPOptions, ProxyLocation, RequestRouterConfig

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

from moed_ray.gateway import Gateway  # noqa: E402
from moed_ray.node import Node  # noqa: E402
from moed_ray.routing import ConversationRouter  # noqa: E402
from moed_ray.settings import Settings  # noqa: E402

QUEUED = 4  # requests that wait at a node, for each that it computes


def arguments(argv: list[str]) -> argparse.Namespace:
    own, up = (argv[: argv.index("--")], argv[argv.index("--") + 1 :]) if "--" in argv else (argv, [])
    p = argparse.ArgumentParser(description="Serve a model on a Ray cluster, one moed deployment a node.", epilog="-- OPTIONS: of `moed up`")
    p.add_argument("--model", required=True, help="the GGUF file, on every node at this path; or demo")
    p.add_argument("--host", default="127.0.0.1", help="listen at this address [%(default)s]")
    p.add_argument("--port", type=int, default=8000, help="listen at this port [%(default)s]")
    p.add_argument("--api-key-file", default="", metavar="FILE", help="require one of the API keys in FILE, on every node at this path")
    p.add_argument("--insecure", action="store_true", help="listen to other machines without an API key")
    p.add_argument("--name", default="moed", help="the Serve application's name [%(default)s]")
    p.add_argument("--nodes", default="1", metavar="N[:MOST]", help="nodes that serve; with MOST between N and MOST, by load [%(default)s]")
    p.add_argument("--frontends", type=int, default=2, help="processes of moed-http on a node [%(default)s]")
    p.add_argument("--parallel", type=int, default=4, help="requests that a node computes at once [%(default)s]")
    p.add_argument("--moed", default="moed", help="the program moed, on every node [%(default)s]")
    p.add_argument("--num-cpus", type=float, default=0, help="CPUs of Ray that a node takes [%(default)s]")
    p.add_argument("--resource", default="", help="Ray's resource that nodes must have, as NAME")
    p.add_argument("--linger", type=float, default=60, metavar="S", help="keep the model on a node S seconds after the node has stopped serving [%(default)s]")
    p.add_argument("--directory", default="", help="where the nodes' runtime directories are [/tmp/moed-ray-UID]")
    p.add_argument("--downscale-delay", type=float, default=600, metavar="S", help="give a node back after S seconds of less load [%(default)s]")
    p.add_argument("--no-prefix-aware", action="store_true", help="send the turns of a conversation anywhere (for comparison)")
    p.add_argument("--detach", action="store_true", help="return when the application runs, and leave it")
    a = p.parse_args(own)
    a.up = up
    least, _, most = a.nodes.partition(":")
    try:
        a.least, a.most = int(least), int(most or least)
    except ValueError:
        p.error(f"--nodes {a.nodes}: N or N:MOST")
    if not 1 <= a.least <= a.most:
        p.error(f"--nodes {a.nodes}: 1 <= N <= MOST")
    if not (a.host in ("127.0.0.1", "localhost", "::1") or a.api_key_file or a.insecure):
        p.error(f"--host {a.host} lets other machines in: name a file of keys with --api-key-file, or say --insecure")
    return a


def node_options(a: argparse.Namespace) -> dict[str, Any]:
    options: dict[str, Any] = {
        "max_replicas_per_node": 1,
        "max_ongoing_requests": a.parallel * (1 + QUEUED),
        "ray_actor_options": {"num_cpus": a.num_cpus, **({"resources": {a.resource: 0.001}} if a.resource else {})},
        "request_router_config": RequestRouterConfig(
            request_router_class=cast(Any, ConversationRouter), request_router_kwargs={"aware": not a.no_prefix_aware}
        ),
        "health_check_period_s": 2,
        "graceful_shutdown_timeout_s": 60,
    }
    if a.least == a.most:
        return {**options, "num_replicas": a.least}
    policy = AutoscalingPolicy(policy_function="moed_ray.scaling:Policy", policy_kwargs={"parallel": a.parallel})
    return {**options, "autoscaling_config": AutoscalingConfig(
        min_replicas=a.least, max_replicas=a.most, policy=policy, metrics_interval_s=1, look_back_period_s=5,
        upscale_delay_s=5, downscale_delay_s=a.downscale_delay,
    )}


def application(a: argparse.Namespace) -> Any:
    keys = [f"--api-key-file={a.api_key_file}"] if a.api_key_file else []
    settings = Settings(a.model, a.moed, a.up, keys, a.parallel, a.frontends, a.linger, a.directory)
    deployment: Any = serve.deployment  # its types are not those of its use
    node = deployment(Node, name="Node", **node_options(a)).bind(settings)
    # Beside the cluster's head, whose death ends the cluster anyway: no node that may go takes a client's connection with it.
    gateway = deployment(
        Gateway, name="Gateway", max_ongoing_requests=10_000,
        ray_actor_options={"num_cpus": 0, "resources": {"node:__internal_head__": 0.001}},
    )
    return gateway.bind(node)


def main() -> None:
    a = arguments(sys.argv[1:])
    ray.init(runtime_env={"working_dir": HERE, "excludes": ["*.md"]}, log_to_driver=False)
    serve.start(proxy_location=ProxyLocation.HeadOnly, http_options=HTTPOptions(host=a.host, port=a.port))
    serve.run(application(a), name=a.name, route_prefix="/")
    print(f"serving {a.model} at http://{a.host}:{a.port}/v1", flush=True)
    if not a.detach:
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
        serve.delete(a.name)


if __name__ == "__main__":
    main()
