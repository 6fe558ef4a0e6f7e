#!/usr/bin/env python3
"""Checks deploy/monitoring: the metrics that its expressions name exist in the sources; the dashboard's panels have different ids and
do not overlap, and select by its variables; an alert on a quantile is far below its histogram's highest bound; alerts_test.yml has a case in which each alert fires;
and, where promtool is installed, Prometheus reads the configuration, the alerts and every panel's expressions, and the alerts fire as
alerts_test.yml says, with the target's labels of one host and with those of Kubernetes.

usage: monitoring.py ROOT"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

OF_EVERY_PROCESS = {"process_resident_memory_bytes", "process_cpu_seconds_total", "process_start_time_seconds", "process_open_fds",
                    "process_max_fds"}
METRIC = re.compile(r"\b(?:moed|process)_[a-z0-9_]*(?<!_)\b(?=[\s{\[)]|$)")
VARIABLES = {"$deployment": ".*", "$instance": ".*", "$pod": ".*", "$__rate_interval": "1m"}


def read_sources(root):
    texts = []
    for folder in ("memd", "worker", "cpuexec", "client", "lib", "deploy"):
        for at, _, files in os.walk(os.path.join(root, folder)):
            for name in files:
                if name.endswith((".c", ".h")):
                    with open(os.path.join(at, name), encoding="utf-8") as f:
                        texts.append(f.read())
    return "".join(texts)


def registered(sources):
    return OF_EVERY_PROCESS | set(re.findall(r'"(moed_[a-z0-9_]+)"', sources))


def alert_expressions(path):
    with open(path, encoding="utf-8") as f:
        return re.findall(r"^\s+expr: (.*)$", f.read(), re.M)


def panel_expressions(panels):
    return [t["expr"] for p in panels for t in p.get("targets", [])]


def unknown_metrics(expressions, names):
    for expression in expressions:
        for metric in METRIC.findall(expression):
            if metric not in names and re.sub(r"_(bucket|sum|count)$", "", metric) not in names:
                yield f"no process has {metric}: {expression}"


def unselected_metrics(expressions):
    """Each sample of a panel is chosen by the dashboard's variables."""
    for expression in expressions:
        for metric, labels in re.findall(r"\b((?:moed|process)_[a-z0-9_]*[a-z0-9])\b(?:\{([^}]*)\})?", re.sub(r"\b(?:by|without) \([^)]*\)", "", expression)):
            if not all(f'{name}=~"${name}"' in labels for name in ("deployment", "instance", "pod")):
                yield f"{metric} is not selected by deployment, instance and pod: {expression}"


def overlaps(a, b):
    return a["x"] < b["x"] + b["w"] and b["x"] < a["x"] + a["w"] and a["y"] < b["y"] + b["h"] and b["y"] < a["y"] + a["h"]


def layout_faults(panels):
    if len({p["id"] for p in panels}) != len(panels):
        yield "two panels have the same id"
    for i, a in enumerate(panels):
        for b in panels[:i]:
            if overlaps(a["gridPos"], b["gridPos"]):
                yield f"the panels {b['title']} and {a['title']} overlap"


def bounds_of(name, sources):
    """The bounds of a histogram that the sources register; [] where they are not found."""
    array = re.search(rf'"{name}",[^;]*?(\w*bounds)\b', sources)
    values = array and re.search(rf"\b{array[1]}\[\] = \{{([^}}]*)\}}", sources)
    return [float(v) for v in values[1].split(",")] if values else []


def quantile_faults(expressions, sources):
    """A quantile is at most the histogram's highest bound, so an alert needs one far above its threshold."""
    for expression in expressions:
        found = re.search(r"histogram_quantile\(.*?\b(moed_\w+)_bucket.* > (\d+)$", expression)
        if found and max(bounds_of(found[1], sources), default=0) < 20 * float(found[2]):
            yield f"the highest bound of {found[1]} is below 20 times the threshold: {expression}"


def read_cases():
    with open(os.path.join(os.path.dirname(__file__), "alerts_test.yml"), encoding="utf-8") as f:
        return f.read()


def unfired_alerts(path, cases):
    fired = {m[1] for m in re.finditer(r"alertname: (\w+)[,\n]\s*exp_alerts:\s*(?:\[\{|- )", cases)}
    with open(path, encoding="utf-8") as f:
        for alert in re.findall(r"- alert: (\w+)", f.read()):
            if alert not in fired:
                yield f"no case of alerts_test.yml fires {alert}"


def with_labels_of_pods(cases):
    cases = cases.replace('job="moed"', 'job="moed/moed",namespace="moed",pod="moed-0",container="moed"')
    return cases.replace("job: moed,", "job: moed/moed, namespace: moed, pod: moed-0, container: moed,")


def stale_rule(root):
    """The PrometheusRule of deploy/kubernetes is what the program makes of alerts.yml."""
    made = subprocess.run([os.path.join(root, "deploy", "monitoring", "prometheus-rule")], capture_output=True, text=True, check=True).stdout
    path = "deploy/kubernetes/overlays/monitored/rules.yaml"
    with open(os.path.join(root, path), encoding="utf-8") as f:
        if f.read() != made:
            yield f"{path} is stale: run deploy/monitoring/prometheus-rule >{path}"


def promtool_faults(folder, panels):
    if not shutil.which("promtool"):
        return
    with tempfile.TemporaryDirectory() as work:
        path = os.path.join(work, "panels.yml")
        with open(path, "w", encoding="utf-8") as f:
            f.write("groups:\n- name: panels\n  rules:\n")
            for expression in panel_expressions(panels):
                for variable, value in VARIABLES.items():
                    expression = expression.replace(variable, value)
                f.write(f"  - record: x\n    expr: {json.dumps(expression)}\n    labels: {{n: {json.dumps(expression)}}}\n")
        cases, cases_of_pods = os.path.join(work, "alerts_test.yml"), os.path.join(work, "alerts_of_pods_test.yml")
        with open(cases, "w", encoding="utf-8") as f, open(cases_of_pods, "w", encoding="utf-8") as g:
            f.write(read_cases())
            g.write(with_labels_of_pods(read_cases()))
        with open(os.path.join(folder, "alerts.yml"), encoding="utf-8") as f, open(os.path.join(work, "rules.yml"), "w", encoding="utf-8") as g:
            g.write(re.sub(r"^ *(annotations|summary|description):.*\n", "", f.read(), flags=re.M))
        for arguments in (["check", "config", os.path.join(folder, "prometheus.yml")], ["check", "rules", os.path.join(folder, "alerts.yml")],
                          ["check", "rules", path], ["test", "rules", cases],
                          ["test", "rules", cases_of_pods]):
            r = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)
            if r.returncode:
                yield r.stdout + r.stderr


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = os.path.join(sys.argv[1], "deploy", "monitoring")
    with open(os.path.join(folder, "dashboard.json"), encoding="utf-8") as f:
        panels = json.load(f)["panels"]
    alerts = os.path.join(folder, "alerts.yml")
    sources = read_sources(sys.argv[1])
    expressions = alert_expressions(alerts) + panel_expressions(panels)
    if len(expressions) < 20:
        sys.exit(f"found only {len(expressions)} expressions")
    faults = [*unknown_metrics(expressions, registered(sources)), *layout_faults(panels), *unselected_metrics(panel_expressions(panels)), *unfired_alerts(alerts, read_cases()),
              *quantile_faults(alert_expressions(alerts), sources), *stale_rule(sys.argv[1]), *promtool_faults(folder, panels)]
    if faults:
        sys.exit("\n".join(faults))


main()
