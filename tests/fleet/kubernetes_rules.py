"""What no schema says of rendered manifests. usage: kubernetes_rules.py SOURCE RENDERED"""
import os
import re
import sys

import yaml

SOURCE, RENDERED = sys.argv[1:3]
WORKLOADS = ("DaemonSet", "Deployment")


def faults(resources):
    workloads = [r for r in resources if r["kind"] in WORKLOADS]
    names = {(r["kind"], r["metadata"]["name"]) for r in resources}
    labels = [w["spec"]["template"]["metadata"]["labels"] for w in workloads]

    def selects(selector):
        return any(selector.items() <= each.items() for each in labels)

    if len(workloads) != 2:
        yield f"{len(workloads)} workloads"
    for r in resources:
        name = f"{r['kind']} {r['metadata']['name']}"
        if r["kind"] != "Namespace" and r["metadata"].get("namespace") != "moed":
            yield f"{name} is not in the namespace moed"
        spec = r.get("spec", {})
        selector = {"Service": spec.get("selector"), "NetworkPolicy": spec.get("podSelector", {}).get("matchLabels"),
                    "PodDisruptionBudget": spec.get("selector", {}).get("matchLabels") if isinstance(spec.get("selector"), dict) else None}.get(r["kind"])
        if selector is not None and not selects(selector):
            yield f"{name} selects no pod"
        if r["kind"] == "HorizontalPodAutoscaler" and (spec["scaleTargetRef"]["kind"], spec["scaleTargetRef"]["name"]) not in names:
            yield f"{name} scales what does not exist"
        if r["kind"] == "PodMonitor":
            yield from monitor_faults(name, spec, workloads)
    for w in workloads:
        yield from pod_faults(w["spec"]["template"]["spec"], names)


def monitor_faults(name, spec, workloads):
    wanted = spec["selector"]["matchLabels"].items()
    pods = [w["spec"]["template"] for w in workloads if wanted <= w["spec"]["template"]["metadata"]["labels"].items()]
    ports = {p.get("name") for pod in pods for c in pod["spec"]["containers"] for p in c.get("ports", [])}
    secrets = {v["secret"]["secretName"] for pod in pods for v in pod["spec"].get("volumes", []) if "secret" in v}
    if not pods:
        yield f"{name} selects no pod"
    for e in spec["podMetricsEndpoints"]:
        if e["port"] not in ports:
            yield f"{name}: no pod has the port {e['port']}"
        if "authorization" in e and e["authorization"]["credentials"]["name"] not in secrets:
            yield f"{name}: the pods do not have the Secret of its key"


def pod_faults(pod, names):
    volumes = {v["name"] for v in pod.get("volumes", [])}
    for v in pod.get("volumes", []):
        if "configMap" in v and ("ConfigMap", v["configMap"]["name"]) not in names:
            yield f"there is no ConfigMap {v['configMap']['name']}"
    if not pod["securityContext"].get("runAsNonRoot"):
        yield "a pod may run as root"
    for c in pod["containers"]:
        mounted = {m["name"] for m in c["volumeMounts"]}
        if not mounted <= volumes:
            yield f"{c['name']} mounts {mounted - volumes}, which is no volume"
        security = c["securityContext"]
        if not security["readOnlyRootFilesystem"] or security["allowPrivilegeEscalation"] or security["capabilities"]["drop"] != ["ALL"]:
            yield f"{c['name']} is not confined"
        if "memory" not in c["resources"]["limits"]:
            yield f"{c['name']} has no limit of memory"
        if not re.fullmatch(r"\S+/\S+:\S+", c["image"]):
            yield f"the image {c['image']} has no registry or no tag"
    # Processes in several containers know each other by pid, and by sockets in /run/moed.
    ours = [c for c in pod["containers"] if "/moed:" in c["image"]]
    for c in ours:
        yield from run_faults(c, {v["name"] for v in pod["volumes"] if "emptyDir" in v})
    if ours:
        yield from memory_faults(ours)
    if len({run_directory(c) for c in ours}) > 1:
        yield "moed's containers have several runtime directories"
    if len(ours) > 1:
        if not pod.get("shareProcessNamespace"):
            yield "moed's containers do not share their processes"
        if any("/run/moed" not in {m["mountPath"] for m in c["volumeMounts"]} for c in ours):
            yield "moed's containers do not share /run/moed"


def run_directory(container):
    """What the container's processes use: --run, MOED_RUN of the manifest, or that of the image."""
    named = re.search(r"--run[= ](\S+)", " ".join(container.get("command", []) + container.get("args", [])))
    if named:
        return named.group(1)
    with open(f"{SOURCE}/deploy/container/Containerfile", encoding="utf-8") as f:
        image = re.search(r"\bMOED_RUN=(\S+)", f.read()).group(1)
    return next((e["value"] for e in container.get("env", []) if e["name"] == "MOED_RUN"), image)


def run_faults(container, empty_dirs):
    # The kubelet makes an emptyDir writable to everybody, and moed refuses a parent that others may write in.
    parent = os.path.dirname(run_directory(container))
    mounts = {m["mountPath"] for m in container["volumeMounts"] if m["name"] in empty_dirs}
    if parent in mounts or not any(parent.startswith(f"{m}/") for m in mounts):
        yield f"{container['name']}: {parent} is no folder in an emptyDir"


def memory_faults(containers):
    # memd compares --kv-cache with its limit. The worker is the first to write the KV cache's pages, so they count in its container.
    text = {c["name"]: " ".join(c.get("command", []) + c.get("args", [])) for c in containers}
    size = max((gib(found) for t in text.values() for found in re.findall(r"--kv-cache[= ](\S+)", t)), default=None)
    if size is None:
        yield "there is no --kv-cache, and memd takes half of the node's free memory"
        return
    for c in containers:
        if "moed-http" not in text[c["name"]] and gib(c["resources"]["limits"]["memory"]) < size + 2:
            yield f"{c['name']}: the limit of memory does not hold --kv-cache and 2 GiB"


def gib(size):
    return float(re.fullmatch(r"([0-9.]+)Gi", size).group(1))


def version_faults(text):
    with open(f"{SOURCE}/CMakeLists.txt", encoding="utf-8") as f:
        version = re.search(r"project\(moed VERSION ([0-9.]+)", f.read()).group(1)
    for tag in re.findall(r"image: \S+/moed:([0-9.]+)", text):
        if tag != version:
            yield f"an image has the tag {tag}, and moed is {version}"


def main():
    with open(RENDERED, encoding="utf-8") as f:
        text = f.read()
    found = [*faults(list(yaml.safe_load_all(text))), *version_faults(text)]
    if found:
        sys.exit("\n".join(found))


main()
