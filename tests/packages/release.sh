#!/bin/bash
# deploy/release on the commit that is checked out: the archives unpack and run, checksums and SBOM are right. usage: release.sh SOURCE BUILD
set -eu
source=$1 build=$2
fail() { echo "FAILED: $*" >&2; exit 1; }
skip() { echo "skipped: $*"; exit 77; }
for tool in git readelf dpkg-query; do command -v $tool >/dev/null || skip "$tool is not installed"; done
cd "$source"
git rev-parse --git-dir >/dev/null 2>&1 || skip "this is no checkout of git"
[ -z "$(git status --porcelain --untracked-files=no)" ] || skip "files differ from the commit, and a release is made of a commit"
work=$(mktemp -d)
trap '"$work"/x/*/bin/moed down >/dev/null 2>&1 || true; rm -rf "$work"' EXIT
make() { deploy/release --no-packages "$@" >"$work/log" 2>&1; }
make --build "$build" --output "$work/files" || fail "$(tail -n 5 "$work/log")"
make --build "$build" --output "$work/again" || fail "$(tail -n 5 "$work/log")"
cmp "$work/files/SHA256SUMS" "$work/again/SHA256SUMS" || fail "a second run makes other files"
if readelf -d "$build/bench/moed-replay" | grep -q libglpk; then # as with MOED_GLPK=ON
    mkdir "$work/glpk"
    touch "$work/glpk/CMakeCache.txt"
    echo "file(INSTALL \"$build/bench/moed-replay\" DESTINATION \"\${CMAKE_INSTALL_PREFIX}/bin\" USE_SOURCE_PERMISSIONS)" >"$work/glpk/cmake_install.cmake"
    if make --build "$work/glpk" --output "$work/none"; then fail "a moed-replay with GLPK is released"; fi
    grep -q "moed-replay needs GLPK" "$work/log" || fail "the refusal says: $(cat "$work/log")"
fi
(cd "$work/files" && sha256sum --quiet -c SHA256SUMS) || fail "the checksums differ"
[ "$(wc -l <"$work/files/SHA256SUMS")" -eq 3 ] || fail "there are other files: $(ls "$work/files")"

mkdir "$work/x" "$work/s"
tar -C "$work/s" -xf "$(find "$work/files" -name "moed-*.tar.gz" ! -name "*-linux-*")"
git ls-files | sort >"$work/wanted"
(cd "$work"/s/moed-* && find . ! -type d | sed 's|^\./||' | sort) >"$work/found"
diff "$work/wanted" "$work/found" >"$work/diff" || fail "the sources' archive differs from the commit: $(head -n 3 "$work/diff")"

tar -C "$work/x" -xf "$work"/files/moed-*-linux-*.tar.gz
for unit in "$work"/x/*/lib/systemd/system/*; do
    if grep -E '^(Exec|Condition)[A-Za-z]*=[^ ]*/' "$unit" | grep -vE "=[-+@:!]*(/opt/moed-[^/]*-linux-[^/]*/|/usr/|/bin/)"; then fail "$unit starts what is elsewhere"; fi
done
export MOED_RUN=$work/run XDG_CACHE_HOME=$work/cache XDG_CONFIG_HOME=$work/config
moed=$(echo "$work"/x/*/bin/moed)
"$moed" --version | grep -q "$(sed -nE 's/^project\(moed VERSION ([0-9.]+).*/\1/p' CMakeLists.txt)" || fail "another version: $("$moed" --version)"
"$moed" up demo --device host --ctx 256 >"$work/log" 2>&1 || fail "the unpacked moed does not start: $(cat "$work/log")"
[ -n "$("$moed" run --temp 0 -n 4 "Once upon a time" 2>/dev/null)" ] || fail "the unpacked moed does not answer"
"$moed" down >/dev/null

python3 - "$work" <<'PYTHON' || fail "see above"
import glob, hashlib, json, os, subprocess, sys

work = sys.argv[1]
with open(glob.glob(f"{work}/files/*.spdx.json")[0], encoding="utf-8") as f:
    sbom = json.load(f)
ids = [x["SPDXID"] for x in [sbom, *sbom["packages"], *sbom["files"]]]
assert len(ids) == len(set(ids)), "an id stands twice"
for r in sbom["relationships"]:
    assert r["spdxElementId"] in ids and r["relatedSpdxElement"] in ids, r
files = {f["fileName"]: f for f in sbom["files"]}
installed = glob.glob(f"{work}/x/*")[0]
for name, entry in files.items():
    with open(os.path.join(installed, name), "rb") as f:
        digest = hashlib.sha256(f.read()).hexdigest()
    assert {"algorithm": "SHA256", "checksumValue": digest} in entry["checksums"], name
for program in ("moed", "moed-memd", "moed-worker", "moed-cpuexec", "moed-http", "moed-supervise"):
    assert f"./bin/{program}" in files, f"{program} is not in the SBOM"
# An independent list of what is loaded: the dynamic section, by objdump or readelf.
needed = subprocess.run(["readelf", "-d", os.path.join(installed, "bin", "moed-http")], capture_output=True, text=True, check=True).stdout
names = {p["name"] for p in sbom["packages"]}
for library, package in (("libmicrohttpd.so", "libmicrohttpd12"), ("libjansson.so", "libjansson4")):
    assert (library in needed) == (package in names) == True, (library, names)
PYTHON
echo ok
