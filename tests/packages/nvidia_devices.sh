#!/bin/bash
# deploy/systemd/nvidia-devices with a script in the place of nvidia-modprobe: what it makes, and when nothing. usage: nvidia_devices.sh SOURCE
set -eu
fail() { echo "FAILED: $*" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/bin" "$work/none" "$work"/gpus/{0000:01:00.0,0000:41:00.0}
ln -s "$(command -v sed)" "$work/none/sed"
printf '#!/bin/sh\necho "$*" >>%s/calls\n' "$work" >"$work/bin/nvidia-modprobe"
chmod +x "$work/bin/nvidia-modprobe"
printf 'Model: \t\t NVIDIA\nDevice Minor: \t 0\nGPU Excluded:\t No\n' >"$work/gpus/0000:01:00.0/information"
printf 'Device Minor: \t 3\n' >"$work/gpus/0000:41:00.0/information"
# calls PATH OPTIONS: the calls of nvidia-modprobe.
calls() {
    : >"$work/calls"
    PATH=$1 MOED_MEMD_OPTIONS=$2 "$source/deploy/systemd/nvidia-devices" "$work/gpus" || fail "it fails"
    paste -sd ';' "$work/calls"
}
source=$1
[ "$(calls "$work/bin:$PATH" "--device=cuda:0,1 --ctx=256")" = '-c 255;-c 0;-c 3;-u -c 0' ] || fail "$(cat "$work/calls")"
[ -z "$(calls "$work/bin:$PATH" "--ctx=256")" ] || fail "without a CUDA device: $(cat "$work/calls")"
[ -z "$(calls "$work/none" "--device=cuda:0")" ] || fail "without a driver: $(cat "$work/calls")"

# Who starts it, and where the driver keeps what it compiles: its own place, in the home folder, cannot be written.
for line in 'ExecStartPre=-+@CMAKE_INSTALL_FULL_LIBEXECDIR@/moed/nvidia-devices' 'CacheDirectory=moed' 'Environment=CUDA_CACHE_PATH=/var/cache/moed/cuda'; do
    grep -qxF -- "$line" "$source/deploy/systemd/moed-memd@.service.in" || fail "memd's unit lacks $line"
done
grep -qxF 'Environment=CUDA_CACHE_PATH=/var/cache/moed/cuda' "$source/deploy/systemd/moed-worker@.service.in" || fail "the worker's unit has no CUDA_CACHE_PATH"
