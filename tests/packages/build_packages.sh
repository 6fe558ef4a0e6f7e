#!/bin/bash
# deploy/build-packages with a script in the place of dpkg-buildpackage: it builds the checkout's files, with git and without. And what is
# in the context of an image's build. tests/packages/run and tests/packages/container have the real packages.
# usage: build_packages.sh SOURCE
set -eu -o pipefail
source=$1
fail() { echo "FAILED: $*" >&2; exit 1; }
skip() { echo "skipped: $*"; exit 77; }
command -v git >/dev/null || skip "git is not installed"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The tools of an image without git. The package that is built is the list of the files.
mkdir "$work/bin" "$work/git"
for tool in bash sh dirname realpath sed date mktemp mkdir tar cp rm mv ls find tail cat; do ln -s "$(command -v $tool)" "$work/bin/$tool"; done
ln -s "$(command -v git)" "$work/git/git"
printf '#!/bin/sh\nfind . -type f >../files.deb\n' >"$work/bin/dpkg-buildpackage"
printf '#!/bin/sh\n' >"$work/bin/dh"
chmod +x "$work/bin/dpkg-buildpackage" "$work/bin/dh"

# A checkout with a new file, a removed one, and one that git ignores.
checkout=$work/checkout
mkdir -p "$checkout/deploy/container/models" "$checkout/build"
cp -r "$source/CMakeLists.txt" "$source/.gitignore" "$source/.dockerignore" "$checkout"
cp -r "$source"/deploy/{build-packages,debian} "$checkout/deploy"
touch "$checkout/removed" "$checkout/build/built" "$checkout/deploy/container/models/model.gguf" "$checkout/deploy/container/keys"
cd "$checkout"
git init -q
git add CMakeLists.txt .gitignore deploy/build-packages deploy/debian removed
git -c user.name=t -c user.email=t@t.example commit -qm test
rm removed
touch new

ignored=(./deploy/container/keys ./deploy/container/models/model.gguf)
mapfile -t files < <(find . -type f ! -path './.git/*' ! -path './build/*' ! -path './deploy/container/*')
for file in "${ignored[@]}"; do git check-ignore -q "$file" || fail "git adds $file"; done

# packages PATH FILE...: the package of this PATH has these files, beside those of the folder debian.
packages() {
    PATH=$1 deploy/build-packages --output "$work/out" >"$work/log" 2>&1 || fail "build-packages: $(cat "$work/log")"
    shift
    diff <(grep -v '^\./debian/' "$work/out/files.deb" | sort) <(printf '%s\n' "$@" | sort) || fail "see above: < packaged, > wanted"
}
packages "$work/bin:$work/git" "${files[@]}"
packages "$work/bin" "${files[@]}" "${ignored[@]}"
rm -r .git
mkdir .git # no repository, though git is installed
packages "$work/bin:$work/git" "${files[@]}" "${ignored[@]}"
rm "$work/bin/find" && ln -s "$(command -v false)" "$work/bin/find"
if PATH=$work/bin deploy/build-packages --output "$work/out" >"$work/log" 2>&1; then fail "build-packages packs nothing, and succeeds"; fi

# Docker reads no .containerignore; buildah and podman read .dockerignore only where there is none.
[ ! -e "$source/.containerignore" ] || fail ".containerignore hides .dockerignore from buildah and podman"
for path in .git build deploy/container/models deploy/container/keys; do
    grep -qxF "$path" "$source/.dockerignore" || fail "$path is in the context of an image's build"
done
