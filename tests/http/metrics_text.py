"""Checks Prometheus' text format, version 0.0.4, from standard input: what its specification and the naming rules demand.

usage: metrics_text.py NAME < TEXT; as a module: check(text) yields what is wrong, a line each."""
import math
import re
import sys

NAME = r"[a-zA-Z_][a-zA-Z0-9_]*"  # colons are for recording rules
LABEL = NAME + r'="(?:[^"\\\n]|\\\\|\\"|\\n)*"'
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*,?)?\}})? (\S+)(?: (-?\d+))?$")
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("", "_sum", "_count")}


def number(text):
    if text in ("+Inf", "-Inf", "NaN"):
        return float(text.replace("Inf", "inf"))
    if not re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", text):
        raise ValueError(text)
    return float(text)


def check_head(families, current, word, name, rest, at):
    """A HELP or TYPE line. Returns the family it is of."""
    if not re.fullmatch(NAME, name):
        yield f"line {at}: '{name}' is no name of a metric"
    family = families.setdefault(name, {"HELP": None, "TYPE": None, "samples": {}, "closed": False})
    if family[word] is not None:
        yield f"line {at}: a second {word} of {name}"
    if family["samples"]:
        yield f"line {at}: {word} of {name} behind its samples"
    if word == "TYPE" and rest not in ("counter", "gauge", "histogram", "summary", "untyped"):
        yield f"line {at}: type '{rest}' of {name}"
    if word == "HELP" and "\\" in re.sub(r"\\[\\n]", "", rest):
        yield f"line {at}: HELP of {name} has a backslash that escapes nothing"
    if word == "HELP" and not rest.strip():
        yield f"line {at}: HELP of {name} is empty"
    family[word] = rest


def family_of(families, name):
    for suffix in ("", "_bucket", "_sum", "_count"):
        base = name[:len(name) - len(suffix)] if suffix and name.endswith(suffix) else name if not suffix else None
        kind = families.get(base, {}).get("TYPE")
        if kind and suffix in SUFFIXES.get(kind, ("",)):
            return base
    return None


def check_histogram(name, samples):
    series = {}
    for (sample, labels), value in samples.items():
        own = tuple(l for l in labels if not l.startswith("le="))
        s = series.setdefault(own, {"buckets": []})
        if sample.endswith("_bucket"):
            bounds = [l[4:-1] for l in labels if l.startswith("le=")]
            if len(bounds) != 1:
                yield f"{sample}{list(labels)} has no bound"
                continue
            s["buckets"].append((number(bounds[0]), value))
        else:
            s[sample[len(name):]] = value
    for own, s in series.items():
        buckets = s["buckets"]
        if not buckets or buckets[-1][0] != math.inf:
            yield f"{name}{list(own)}: the last bucket is not +Inf"
        elif buckets != sorted(buckets) or [v for _, v in buckets] != sorted(v for _, v in buckets):
            yield f"{name}{list(own)}: buckets do not grow"
        elif s.get("_count") != buckets[-1][1] or "_sum" not in s:
            yield f"{name}{list(own)}: _count and the last bucket differ, or there is no _sum"


def check_family(name, f):
    if f["TYPE"] is None or f["HELP"] is None:
        yield f"{name} has no TYPE or no HELP"
    if not f["samples"]:
        yield f"{name} has no samples"
    if f["TYPE"] == "counter" and not name.endswith("_total"):
        yield f"{name}: a counter's name ends with _total"
    if f["TYPE"] == "gauge" and name.endswith(("_total", "_count", "_sum", "_bucket")):
        yield f"{name}: a gauge's name looks like a counter's"
    if re.search(r"_(ms|us|ns|milliseconds|microseconds|kb|mb|kilobytes|minutes)(_total)?$", name):
        yield f"{name}: units are base units"
    if f["TYPE"] in ("counter", "histogram"):
        for (sample, labels), value in f["samples"].items():
            if not value >= 0:
                yield f"{sample}{list(labels)} is {value}"
    if f["TYPE"] == "histogram":
        yield from check_histogram(name, f["samples"])


def check_sample(families, current, line, at):
    found = SAMPLE.match(line)
    if not found:
        yield f"line {at}: no sample: {line}"
        return
    name, labels = found[1], tuple(sorted(re.findall(LABEL, found[2] or "")))
    base = family_of(families, name)
    names = [l.split("=", 1)[0] for l in labels]
    if base is None:
        yield f"line {at}: {name} has no TYPE before it"
        return
    if base != current:
        yield f"line {at}: {name} stands among the samples of {current}"
    if len(set(names)) != len(names) or any(n.startswith("__") for n in names):
        yield f"line {at}: labels {names}"
    try:
        value = number(found[3])
    except ValueError:
        yield f"line {at}: value {found[3]}"
        return
    if (name, labels) in families[base]["samples"]:
        yield f"line {at}: {name}{list(labels)} comes twice"
    families[base]["samples"][name, labels] = value


def check(text):
    families, current = {}, None
    if not text.endswith("\n"):
        yield "the last line has no newline"
    for at, line in enumerate(text.split("\n")[:-1], 1):
        head = re.match(r"# (HELP|TYPE) (\S+) ?(.*)$", line)
        if head:
            yield from check_head(families, current, head[1], head[2], head[3], at)
            current = head[2]
        elif line and not line.startswith("#"):
            yield from check_sample(families, current, line, at)
    for name, f in families.items():
        yield from check_family(name, f)
    if not families:
        yield "no metrics"


def check_itself():
    """What must be found, and what must not: written from the format's description."""
    good = ('# HELP a_total some \\\\ text\n# TYPE a_total counter\na_total{x="1\\"\\n"} 3\na_total 4e2 1000\n'
            '# HELP h s\n# TYPE h histogram\nh_bucket{le="1"} 0\nh_bucket{le="+Inf"} 2\nh_sum 3\nh_count 2\n')
    assert not list(check(good)), list(check(good))
    for old, new in (("a_total 4e2 1000", "a_total 4e2 x"), ('le="+Inf"} 2', 'le="+Inf"} 1'), ("# TYPE h", "# HELP h t\n# TYPE h"),
                     ("a_total 4e2 1000\n", 'a_total{x="1\\"\\n"} 5\n'), ("h_sum 3\n", ""), ("h_count 2\n", "h_count 2"),
                     ("counter\n", "counter\nb 1\n"), ("h_count", "a_total 9\nh_count"), ("# TYPE a_total counter\n", ""), ("some \\\\", "some \\q"),
                     ("# HELP h s", "# HELP b_count x\n# TYPE b_count counter\nb_count 1\n# HELP h s"), ("4e2", "four"), ('"+Inf"', '"2"'),
                     ('le="1"} 0', 'le="1"} 7'), ('x="1\\"\\n"', 'x="1\\q"'), ("# HELP a_total", "# HELP a:b")):
        assert old in good and list(check(good.replace(old, new, 1))), (old, new)


if __name__ == "__main__":
    check_itself()
    wrong = list(check(sys.stdin.read()))
    for line in wrong:
        print(f"{sys.argv[1]}: {line}", file=sys.stderr)
    sys.exit(1 if wrong else 0)
