#!/bin/bash
# Installs into an empty prefix. All files are installed, the installed moed starts the installed daemons, and the example builds with
# pkg-config and gets an answer. usage: install_test.sh CMAKE BUILD COMPILER
CMAKE=$1 BUILD=$2 CC=$3 SOURCE=$(realpath "$(dirname "$0")/../..")
MOED=$BUILD/client/moed
. "$(dirname "$0")/../deployment.sh"
PREFIX=$WORK/prefix
"$CMAKE" --install "$BUILD" --prefix "$PREFIX" > "$WORK/install.log" 2>&1 || fail "cmake --install: $(tail -n 3 "$WORK/install.log")"

say "the installed files"
# installed PATTERN: exactly one installed file or link matches.
installed() {
    [ "$(find "$PREFIX" -path "$PREFIX/$1" | wc -l)" -eq 1 ] || fail "$1 is not installed: $(cd "$PREFIX" && find . | sort | tr '\n' ' ')"
}
for program in moed moed-supervise moed-memd moed-cpuexec moed-worker moed-models moed-http moed-replay moed-bench; do
    installed "bin/$program"
    [ -x "$PREFIX/bin/$program" ] || fail "bin/$program is not executable"
done
for file in 'lib*/libmoed.so' 'lib*/libmoed.so.1' 'lib*/pkgconfig/moed.pc' include/moed.h \
    share/man/man1/moed.1 share/man/man1/moed-replay.1 share/man/man1/moed-bench.1 share/man/man3/libmoed.3 share/man/man3/moed_generate.3 share/man/man3/moed_generate_start.3 share/man/man8/moed-supervise.8 share/man/man8/moed-models.8 share/man/man8/moed-memd.8 \
    share/man/man8/moed-worker.8 share/man/man8/moed-cpuexec.8 share/man/man8/moed-http.8 share/bash-completion/completions/moed \
    share/doc/moed/examples/generate.c share/doc/moed/examples/structured.c share/bash-completion/completions/moed-bench share/doc/moed/LICENSE share/doc/moed/README.md \
    share/doc/moed/docs/operations.md share/bash-completion/completions/moed-replay share/zsh/vendor-completions/_moed share/fish/vendor_completions.d/moed.fish \
    share/fish/vendor_completions.d/moed-replay.fish; do
    installed "$file"
done
for unit in moed-memd@.service moed-cpuexec@.service moed-worker@.service moed-http@.service; do
    installed "lib/systemd/system/$unit"
    grep -q "^ExecStart=$PREFIX/bin/${unit%@.service} " "$PREFIX/lib/systemd/system/$unit" ||
        fail "$unit does not start the installed program: $(grep ^ExecStart= "$PREFIX/lib/systemd/system/$unit")"
done
installed lib/systemd/system/moed@.target
for n in 2 3 4; do
    installed "lib/systemd/system/moed-worker-$n@.service"
    grep -q "^ExecStart=$PREFIX/bin/moed-worker --run=/run/moed/%i --number=%j " "$PREFIX/lib/systemd/system/moed-worker-$n@.service" || fail "moed-worker-$n@ has no number"
    # shellcheck disable=SC2016 # as it stands there
    grep -qxF 'ExecCondition=/usr/bin/test ${MOED_WORKERS} -ge %j' "$PREFIX/lib/systemd/system/moed-worker-$n@.service" || fail "moed-worker-$n@ has no condition"
done
grep -q ExecCondition "$PREFIX/lib/systemd/system/moed-worker@.service" && fail "moed-worker@ has a condition"
installed libexec/moed/upgrade-units
grep -qxF "ExecStart=$PREFIX/libexec/moed/upgrade-units" "$PREFIX/lib/systemd/system/moed-upgrade.service" || fail "moed-upgrade.service does not start upgrade-units"
installed libexec/moed/nvidia-devices
grep -qxF "ExecStartPre=-+$PREFIX/libexec/moed/nvidia-devices" "$PREFIX/lib/systemd/system/moed-memd@.service" || fail "moed-memd@ does not start nvidia-devices"
if command -v systemd-analyze > /dev/null; then
    say "systemd reads the units without a remark"
    mkdir "$WORK/units"
    for unit in "$PREFIX"/lib/systemd/system/moed*; do
        name=$(basename "$unit")
        cp "$unit" "$WORK/units/${name/@./@x.}"
    done
    systemd-analyze verify --man=no "$WORK"/units/* > "$WORK/verify" 2>&1 && [ ! -s "$WORK/verify" ] || fail "systemd-analyze verify: $(cat "$WORK/verify")"
fi
# A module of an earlier configuration may be left in the build.
if [ -e "$BUILD/lib/moed/libmoed-cuda.so" ] && ! grep -q "^MOED_CUDA:[A-Z]*=OFF" "$BUILD/CMakeCache.txt"; then
    installed "$(sed 's|^usr/||' "$(dirname "$0")/../../deploy/debian/moed-cuda.install")" # where the package expects it
fi

say "the list of installed files, also after an installation elsewhere, and after an older one"
LIST=$PREFIX/share/moed/installed-files
(cd "$PREFIX" && find . ! -type d | sed 's|^\./||' | sort) | diff - <(sort "$LIST") > "$WORK/diff" || fail "the list of installed files (>) differs: $(cat "$WORK/diff")"
touch "$PREFIX/bin/older" "$PREFIX/bin/another"
echo bin/older >> "$LIST"
DESTDIR=$WORK/stage "$CMAKE" --install "$BUILD" --prefix /opt/moed > "$WORK/install.log" 2>&1 || fail "cmake --install: $(tail -n 3 "$WORK/install.log")"
"$CMAKE" --install "$BUILD" --prefix "$PREFIX" > "$WORK/install.log" 2>&1 || fail "cmake --install: $(tail -n 3 "$WORK/install.log")"
[ ! -e "$PREFIX/bin/older" ] && grep -q "Removing, of the installation before: .*/bin/older" "$WORK/install.log" || fail "a file of the version before is left"
[ -e "$PREFIX/bin/another" ] || fail "the installation has removed another's file"
cmp "$LIST" "$WORK/stage/opt/moed/share/moed/installed-files" || fail "the list depends on the prefix, or on DESTDIR"
(cd "$WORK/stage/opt/moed" && xargs -d '\n' rm -f < share/moed/installed-files)
left=$(find "$WORK/stage" ! -type d) && [ -z "$left" ] || fail "removing leaves $left"
rm "$PREFIX/bin/another"

say "an installation removes no file of its own, however its path is spelled"
# end_of PREFIX FILE...: the end of an installation of these files, with DESTDIR, in a folder of its own.
end_of() {
    (mkdir -p "$WORK/here" && cd "$WORK/here" && DESTDIR=$WORK/root "$CMAKE" "-DCMAKE_INSTALL_PREFIX=$1" -Ddatadir=share -Dscratch="$WORK" \
        "-DCMAKE_INSTALL_MANIFEST_FILES=$(IFS=';' && echo "${*:2}")" -P "$SOURCE/cmake/installed_files.cmake") > "$WORK/install.log" 2>&1 ||
        fail "the list of $1: $(tail -n 3 "$WORK/install.log")"
}
mkdir -p "$WORK/root/p/lib" "$WORK/root/p/bin" "$WORK/root/q"
ln -s lib "$WORK/root/p/lib64"
touch "$WORK"/root/p/lib/{new,old} "$WORK/root/p/bin/program"
ln -s new "$WORK/root/p/lib/link"
end_of /p /p/lib64/new /p/lib64/old /p/lib64/link /p/bin/program
end_of /q/../p/ /q/../p/lib/new /p/bin/program
[ -e "$WORK/root/p/lib/new" ] && [ -e "$WORK/root/p/bin/program" ] || fail "the installation has removed its own file: $(cat "$WORK/install.log")"
[ ! -e "$WORK/root/p/lib/old" ] && [ ! -L "$WORK/root/p/lib/link" ] || fail "files of the installation before are left"
printf '%s\n' bin/program lib/new share/moed/installed-files | cmp - "$WORK/root/p/share/moed/installed-files" || fail "a prefix with ..: other names"
end_of "" /p/bin/program # what cmake_install.cmake makes of "/"
printf '%s\n' p/bin/program share/moed/installed-files | cmp - "$WORK/root/share/moed/installed-files" || fail "the prefix /: no list, or other names"
[ -z "$(ls "$WORK/here")" ] || fail "the prefix /: files in the caller's folder: $(ls "$WORK/here")"

say "the links of the installed pages"
python3 "$(dirname "$0")/../source/links.py" "$PREFIX/share/doc/moed" > "$WORK/links" 2>&1 || fail "$(cat "$WORK/links")"

if command -v man > /dev/null; then
    say "man(1) finds the pages beside the programs, built and installed"
    for folder in "$BUILD/client" "$PREFIX/bin"; do
        for page in moed moed-replay moed-bench moed-worker; do
            found=$(env -u MANPATH PATH="$folder:$PATH" man -w $page) || fail "no page $page for $folder"
            [ "$(readlink -f "$found")" != "" ] && grep -q "^.Nm $page" "$found" || fail "$found is not of $page"
        done
    done
fi

say "the installed moed starts the installed daemons, with the installed demo model"
MOED=$PREFIX/bin/moed
cd "$WORK" # outside the source tree
installed share/moed/models/demo.gguf
start_deployment demo --cpuexec
"$MOED" inspect --json demo | grep -q "$PREFIX/share/moed/models/demo.gguf" || fail "the demo model is not the installed one: $("$MOED" inspect --json demo)"
for process in supervise memd cpuexec worker; do
    program=$(readlink "/proc/$(pid_of $process)/exe")
    [ "$program" = "$PREFIX/bin/moed-$process" ] || fail "$process runs $program"
done
"$MOED" run -n 8 "Hello" > "$WORK/answer" || fail "moed run: exit code $?"
[ -s "$WORK/answer" ] || fail "moed run printed nothing"

say "the examples build with pkg-config, and one gets an answer"
if ! command -v pkg-config > /dev/null; then
    skip "pkg-config is not installed"
fi
PKG_CONFIG_PATH=$(dirname "$(find "$PREFIX" -name moed.pc)")
export PKG_CONFIG_PATH
[ "$(pkg-config --modversion moed)" = "$("$MOED" --version | tr -dc '0-9.\n')" ] || fail "moed.pc names another version than moed"
# shellcheck disable=SC2046 # flags are several words
"$CC" -Wall -Wextra -Werror "$PREFIX/share/doc/moed/examples/generate.c" $(pkg-config --cflags --libs moed) \
    -o "$WORK/generate" || fail "the example does not build with: $(pkg-config --cflags --libs moed)"
for example in structured chat; do
    # shellcheck disable=SC2046
    "$CC" -Wall -Wextra -Werror "$PREFIX/share/doc/moed/examples/$example.c" $(pkg-config --cflags --libs moed) -o "$WORK/$example" ||
        fail "the example $example does not build"
done
LD_LIBRARY_PATH=$(pkg-config --variable=libdir moed) "$WORK/generate" "Hello" > "$WORK/answer" 2> "$WORK/summary" ||
    fail "the example failed: $(cat "$WORK/summary")"
grep -q ' tokens, ended by: ' "$WORK/summary" || fail "the example prints: $(cat "$WORK/summary")"
[ -s "$WORK/answer" ] || fail "the example got no answer"
