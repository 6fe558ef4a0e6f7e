#!/bin/bash
# The maintainer scripts and triggers of deploy/debian by the real dpkg, in a root of its own that has nothing else in the packages: one
# upgrade of several packages calls upgrade-units once, when all are configured. usage: upgrade_once.sh SOURCE
set -eu
source=$1
fail() { echo "FAILED: $*" >&2; exit 1; }
skip() { echo "skipped: $*"; exit 77; }
command -v dpkg-deb >/dev/null || skip "dpkg-deb is not installed"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir -p "$root"/var/lib/dpkg/{info,updates,triggers} "$root/run/systemd/system" "$root/usr/sbin" "$work/path"
touch "$root/var/lib/dpkg/status"

# The user and the units of this machine are not the test's.
printf '#!/bin/sh\necho "$*" >"%s/sysusers"\n' "$work" >"$work/path/systemd-sysusers"
cat >"$work/path/systemctl" <<TEXT
#!/bin/sh
echo "systemctl \$*" >>"$work/calls"
TEXT
# It notes how it is called, and in which state the packages are then.
cat >"$work/upgrade-units" <<TEXT
#!/bin/sh
dpkg-query --admindir="$root/var/lib/dpkg" -W -f '\${Package} \${Version} \${db:Status-Status}\n' >"$work/states"
echo "\$*" >>"$work/calls"
[ ! -e "$work/fails" ]
TEXT
chmod +x "$work"/path/* "$work/upgrade-units"

# package NAME VERSION [DEPENDS]: with the scripts of deploy/debian; version 0 is of before the trigger.
package() {
    local dir=$work/$1-$2 file
    mkdir -p "$dir/DEBIAN"
    printf 'Package: %s\nVersion: %s\nArchitecture: all\nMaintainer: nobody <nobody@moed.example>\nDescription: test\n' "$1" "$2" >"$dir/DEBIAN/control"
    [ $# -lt 3 ] || echo "Depends: $3" >>"$dir/DEBIAN/control"
    for file in preinst postinst prerm postrm triggers; do
        [ "$2" = 0 ] || [ ! -e "$source/deploy/debian/$1.$file" ] || install -m "$([ $file = triggers ] && echo 644 || echo 755)" "$source/deploy/debian/$1.$file" "$dir/DEBIAN/$file"
    done
    [ "$1" != moed ] || install -D "$work/upgrade-units" "$dir/usr/libexec/moed/upgrade-units"
    dpkg-deb --root-owner-group --build "$dir" "$work/$1_$2.deb" >/dev/null
}
for version in 0 1 2 3; do
    package moed $version
    package moed-http $version "moed (= $version)"
    package moed-cuda $version "moed (= $version)"
done
# calls WANTED DPKG_ARGUMENTS...: how one run of dpkg calls upgrade-units, and systemctl.
calls() {
    local wanted=$1
    shift
    rm -f "$work/calls" "$work/states"
    PATH=$work/path:$PATH:/usr/sbin:/sbin dpkg --root="$root" --log="$work/dpkg.log" --force-not-root --force-script-chrootless "$@" >"$work/said" 2>&1 ||
        fail "dpkg $*: $(cat "$work/said")"
    [ "$(cat "$work/calls" 2>/dev/null)" = "$wanted" ] || fail "dpkg $*: it calls '$(cat "$work/calls")' instead of '$wanted': $(cat "$work/said")"
}
# state PACKAGE WANTED: when upgrade-units was called.
state() { grep -qx "$1 $2" "$work/states" || fail "$1 is not $2: $(cat "$work/states")"; }

cd "$work"
calls "" -i moed_0.deb moed-http_0.deb moed-cuda_0.deb
calls "--wait 60" -i moed_1.deb moed-http_1.deb moed-cuda_1.deb
[ "$(cat "$work/sysusers")" = "--root=$root moed.conf" ] || fail "the user is not made in the root: $(cat "$work/sysusers")"
calls "--wait 60" -i moed_2.deb moed-http_2.deb moed-cuda_2.deb
state moed-http "2 installed"
state moed-cuda "2 installed"
calls "--wait 60" -i moed-cuda_2.deb
calls "--wait 60" -i moed-http_2.deb moed-cuda_2.deb
state moed "2 half-configured"
touch "$work/fails"
calls "--wait 60" -i moed_2.deb
rm "$work/fails"
[ -z "$(dpkg --root="$root" --audit)" ] || fail "a package is left half installed: $(dpkg --root="$root" --audit)"

printf '#!/bin/sh\n[ "$*" = "moed-upgrade.service restart" ] && exit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod +x "$root/usr/sbin/policy-rc.d"
calls "" -i moed_3.deb moed-http_3.deb moed-cuda_3.deb
grep -q "policy-rc.d denies" "$work/said" || fail "it does not name policy-rc.d: $(cat "$work/said")"
rm "$root/usr/sbin/policy-rc.d"
calls "" --remove moed-cuda
calls "" -i moed-cuda_3.deb
calls "systemctl stop moed-http@*.service" --remove moed-http
calls "" -i moed-http_3.deb
rmdir "$root/run/systemd/system" # systemd does not run
calls "" -i moed_3.deb moed-http_3.deb
mkdir "$root/run/systemd/system"
calls "systemctl stop moed-http@*.service
systemctl stop moed-upgrade.service
systemctl stop moed@*.target moed-*@*.service" --remove moed-http moed-cuda moed

# Links of `systemctl enable` go with a purge, and nothing else.
units=$root/etc/systemd/system
mkdir -p "$units/multi-user.target.wants" "$units/moed@a.target.wants"
for link in multi-user.target.wants/moed@a.target moed@a.target.wants/moed-memd@a.service moed@a.target.wants/moed-http@a.service \
    multi-user.target.wants/other.service; do
    ln -s "/usr/lib/systemd/system/none" "$units/$link"
done
touch "$units/moed@a.target.wants/moed-mine@a.service" # no link
calls "" --purge moed
[ "$(find "$units" ! -type d | sort)" = "$units/moed@a.target.wants/moed-mine@a.service
$units/multi-user.target.wants/other.service" ] || fail "purge leaves, or takes: $(find "$units")"
echo ok
