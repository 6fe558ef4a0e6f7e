#!/bin/bash
# deploy/kubernetes: kustomize renders each overlay, every resource follows the published schema of several versions of Kubernetes, and
# what must be the same in several places is. Nothing is applied to a cluster. usage: kubernetes.sh SOURCE
# kubernetes-validate (PyPI) takes 110 MB for its schemas, so no test installs it: MOED_KUBERNETES_VALIDATE=PROGRAM, or it is in PATH.
set -eu
source=$1
say() { echo "$*"; }
fail() { echo "FAILED: $*" >&2; exit 1; }
render=()
if command -v kubectl >/dev/null; then render=(kubectl kustomize); elif command -v kustomize >/dev/null; then render=(kustomize build); fi
[ ${#render[@]} -gt 0 ] || { echo "skipped: neither kubectl nor kustomize is installed"; exit 77; }
python3 -c 'import yaml' 2>/dev/null || { echo "skipped: python3 has no yaml (python3-yaml)"; exit 77; }
validate=${MOED_KUBERNETES_VALIDATE:-kubernetes-validate}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for folder in "$source"/deploy/kubernetes/base "$source"/deploy/kubernetes/overlays/*; do
    name=$(basename "$folder")
    "${render[@]}" "$folder" >"$work/$name.yaml" 2>"$work/log" || fail "$name: $(cat "$work/log")"
    if [ "$name" = monitored ]; then # it stands beside another overlay, and its resources but one are the Prometheus Operator's
        { cat "$work/base.yaml"; echo ---; cat "$work/monitored.yaml"; } >"$work/rules.yaml"
        python3 "$(dirname "$0")/kubernetes_rules.py" "$source" "$work/rules.yaml" || fail "$name"
        python3 -c 'import sys, yaml; yaml.safe_dump_all([r for r in yaml.safe_load_all(sys.stdin) if r["apiVersion"] == "v1"], sys.stdout)' \
            <"$work/monitored.yaml" >"$work/own.yaml" && mv "$work/own.yaml" "$work/monitored.yaml"
    else
        python3 "$(dirname "$0")/kubernetes_rules.py" "$source" "$work/$name.yaml" || fail "$name"
    fi
    command -v "$validate" >/dev/null || continue
    for version in 1.29 1.33 1.36; do
        "$validate" --strict --quiet -k $version "$work/$name.yaml" >"$work/log" 2>&1 || fail "$name by version $version: $(cat "$work/log")"
    done
done
command -v "$validate" >/dev/null || { echo "skipped: all overlays render, but $validate is not installed, so their schemas were not checked"; exit 77; }
say ok
