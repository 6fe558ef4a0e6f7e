#!/bin/bash
# Reads the programs and libmoed: position-independent, read-only relocations that are bound at start, no executable stack,
# stack protector, fortified calls, and on x86-64 control-flow protection.
#   binaries.sh FILE...
set -u
command -v readelf objdump >/dev/null || { echo "skipped: no readelf" >&2; exit 77; }
failed=0
fail() { echo "FAILED: $1: $2" >&2; failed=1; }
# has FILE WHAT OPTION PATTERN: readelf's output has the pattern.
has() { readelf "$3" -W "$1" 2>/dev/null | grep -Eq -- "$4" || fail "$1" "$2"; }
for file in "$@"; do
    has "$file" "not position-independent" -h 'Type: +DYN'
    has "$file" "relocations stay writable (RELRO)" -l 'GNU_RELRO'
    has "$file" "relocations are not bound at start (BIND_NOW)" -d '(FLAGS.* BIND_NOW|FLAGS_1.* NOW)'
    has "$file" "the stack is executable" -l 'GNU_STACK.* RW +0x'
    has "$file" "no stack protector" --dyn-syms ' __stack_chk_fail'
    has "$file" "no fortified call" --dyn-syms ' __[a-z]+_chk(@|$| )'
    readelf -dW "$file" | grep -q TEXTREL && fail "$file" "relocations in its text"
    # The note for the whole file (IBT, SHSTK) needs a C library that was built so, which Debian's is not: the entries of our
    # functions are counted.
    if readelf -hW "$file" | grep -q X86-64; then
        [ "$(objdump -d --no-show-raw-insn -j .text "$file" | grep -c endbr64)" -ge 40 ] || fail "$file" "no control-flow protection (endbr64)"
    fi
done
[ $failed -eq 0 ] && echo "ok: $# files"
exit $failed
