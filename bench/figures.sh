# Functions of the benchmarks in shell, which source this file.

# number NAME FILE: prints a number of a JSON object.
number() { sed -n "s/.*\"$1\": *\([0-9.]*\).*/\1/p" "$2"; }

# median: prints the median of the numbers on standard input, one a line.
median() { sort -g | awk '{ v[NR] = $1 } END { print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'; }
