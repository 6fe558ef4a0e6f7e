# Functions of the tests in this folder. `work` is a folder of the test.
skip() { echo "skipped: $*"; exit 77; }
fail() { echo "FAILED: $*" >&2; exit 1; }
say() { echo "-- $*"; }

# within SECONDS COMMAND...: repeats the command until it succeeds.
within() {
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.3
    done
}

# make_root DIR PACKAGES: a bare Debian root that installs from where this machine does.
make_root() {
    local mirror
    mirror=$(grep -hoE '(URIs: |^deb )https?://[^ ]*/debian\b' /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | head -n 1 | grep -o 'http.*')
    debootstrap --variant=minbase --include="$2" bookworm "$1" "$mirror" >"$work/log" 2>&1 || skip "debootstrap: $(tail -n 1 "$work/log")"
    cp /etc/apt/apt.conf.d/99* "$1/etc/apt/apt.conf.d/" 2>/dev/null
    cp /etc/resolv.conf /etc/hosts "$1/etc/"
}

# answers URL_PREFIX [HEADER]: whether the demo answers a completion.
answers() {
    curl -sf -m 10 "$1/v1/completions" -H 'Content-Type: application/json' ${2:+-H "$2"} -d '{"prompt":"Once upon a time","max_tokens":4,"temperature":0}' | grep -q '"text":"'
}
