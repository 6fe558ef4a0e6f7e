#!/bin/bash
# Clients that are killed or close in the middle of a call leave nothing behind: descriptors, threads and memory of the
# daemons are as before, and the next call is answered at once. MOED_STORM: how many clients (50,000 by hand).
MOED=$1 MODEL=$2 STORM=$3
. "$(dirname "$0")/../deployment.sh"
"$MOED" up "$MODEL" >/dev/null 2>&1
count=${MOED_STORM:-3000}
descriptors() { ls "/proc/$(pid_of "$1")/fd" | wc -l; }
threads() { ls "/proc/$(pid_of "$1")/task" | wc -l; }
kib() { awk '/^RssAnon/ { print $2 }' "/proc/$(pid_of "$1")/status"; }
"$STORM" "$RUN" 500 || fail "the storm client" # so that what is allocated once is
"$MOED" run -n 4 hi >/dev/null
sleep 1
for p in memd worker; do eval "d_$p=$(descriptors $p) t_$p=$(threads $p) m_$p=$(kib $p)"; done
"$STORM" "$RUN" "$count" || fail "the storm client"
same() { [ "$(descriptors "$1")" -le "$2" ] && [ "$(threads "$1")" -le "$3" ]; }
for p in memd worker; do
    eval "d=\$d_$p t=\$t_$p m=\$m_$p"
    wait_until 20 same $p "$d" "$t" || fail "$p: $(descriptors $p) descriptors and $(threads $p) threads, before $d and $t"
    now=$(kib $p)
    say "$p after $count clients: $(descriptors $p) descriptors, $(threads $p) threads, $now KiB (before $d, $t, $m KiB)"
    [ -n "${MOED_SANITIZED:-}" ] || [ "$now" -le $(( m + 4096 )) ] || fail "$p has $now KiB, before $m"
    timeout 60 "$MOED" metrics $p >/dev/null || fail "$p does not answer"
done
timeout 60 "$MOED" run -n 4 hi >/dev/null || fail "no answer afterwards"
say "ok"
