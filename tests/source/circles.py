#!/usr/bin/env python3
"""Finds circles of files, and of folders: each of a circle needs the next one, so none is below the others, and none can
be read or tested alone. The circles in the table are the only ones allowed.

A C file needs the headers that it includes, and the files that define the functions and variables which it names, itself
or by a macro or an inline function of a header, and which these headers declare. It misses names that a macro puts
together (##). A file of Python or JavaScript needs the modules that it imports.
usage: circles.py ROOT [TABLE]"""
import collections
import os
import pathlib
import re
import sys

FOLDERS = ("lib", "memd", "worker", "cpuexec", "client", "deploy", "bench", "tools", "tests")
C_ENDINGS = (".c", ".h", ".cu", ".cuh")
ENDINGS = C_ENDINGS + (".py", ".js", ".mjs")
NOT_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.M)
IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+(\.*[\w.]*)[ \t]+import[ \t]+(\([\w\s,]+|[\w \t,]+)|import[ \t]+([\w.]+))", re.M)
JAVASCRIPT_IMPORT = re.compile(r"^(?:import|export)\b[^;\"']*[\"'](\.[^\"']+)[\"']", re.M)
# A definition begins in the first column: "struct x *f(", "const int v =", "int v[3];".
DEFINED = re.compile(
    r"^(?!(?:static|extern|typedef|return|else|_Static_assert)\b|(?:struct|enum|union) (?:\w+ )?[{;])"
    r"[A-Za-z_][\w \t*]*?[ *](\w+)(\(|\[[^\n]*|;| =)", re.M)
OWN = re.compile(r"^static\b[^;{=\n]*?(\w+)(?:\(|\[| =|;)", re.M)  # of one file alone
# A function, perhaps by the name of its type, or variables.
DECLARED = re.compile(r"\b(\w+)\(|^[a-z]\w+ (\w+);|^extern\b([^;]*);", re.M)
MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)((?:\\\n|[^\n])*)", re.M)
# Its body ends at the first brace in the first column.
INLINE = re.compile(r"^static inline\b[^;{=]*?(\w+)(\([^;{]*\{.*?^\})", re.M | re.S)
# Neither a member of a structure nor its tag.
NAME = re.compile(r"(?<!\.)(?<!->)(?<!struct )(?<!enum )(?<!union )\b[A-Za-z_]\w*")


def has_body(code, at):
    """Whether a function's parameters, which begin at `at`, are followed by its body."""
    depth = 1
    while depth and at < len(code):
        depth += {"(": 1, ")": -1}.get(code[at], 0)
        at += 1
    return code[at:at + 9].lstrip().startswith("{")


def declared(code):
    return {name for m in DECLARED.finditer(code) for name in NAME.findall(m[1] or m[2] or m[3])}


def defined(code):
    return {m[1] for m in DEFINED.finditer(code) if m[2] != "(" or has_body(code, m.end())}


class Tree:
    """The files as {path: text}, and `needs`: {path: {path: names}}."""

    def __init__(self, files):
        self.files = files
        self.needs = collections.defaultdict(lambda: collections.defaultdict(set))
        self.codes = {path: NOT_CODE.sub(" ", text) for path, text in files.items() if path.endswith(C_ENDINGS)}
        self.reached = {}
        for path, text in files.items():
            for module, what, plain in IMPORT.findall(text) if path.endswith(".py") else ():
                self.take_import(path, module or plain, what)
            for module in JAVASCRIPT_IMPORT.findall(text) if path.endswith("js") else ():
                self.need(path, self.header(path, module), "import")
            for header in INCLUDE.findall(text) if path in self.codes else ():
                self.need(path, self.header(path, header), "#include")
        self.take_names()

    def need(self, path, other, name):
        if other and other != path:
            self.needs[path][other].add(name)

    def header(self, path, name):
        near = os.path.normpath(f"{os.path.dirname(path)}/{name}")
        return next((p for p in (near, name, f"lib/{name}") if p in self.files), None)

    def take_import(self, path, module, what):
        dots = len(module) - len(module.lstrip("."))
        folder = os.path.dirname(path)
        for _ in range(dots - 1):
            folder = os.path.dirname(folder)
        module = module.lstrip(".").replace(".", "/")
        for name in [module] + [f"{module}/{n.strip()}".lstrip("/") for n in what.strip("(").split(",")]:
            if name and f"{folder}/{name}.py" in self.files:
                self.need(path, f"{folder}/{name}.py", "import")

    def headers_of(self, path):
        """Those that the file includes, and that they include in turn."""
        if path not in self.reached:
            self.reached[path] = set()
            for other in [p for p in self.needs[path] if "#include" in self.needs[path][p]]:
                self.reached[path] |= {other} | self.headers_of(other)
        return self.reached[path]

    def take_names(self):
        offered = {path: declared(code) for path, code in self.codes.items()}
        stands_for = self.texts_behind_names()
        definers = collections.defaultdict(list)
        for path, code in self.codes.items():
            for name in defined(code) if path.endswith((".c", ".cu")) else ():
                definers[name].append(path)
        for path, code in self.codes.items():
            if not path.endswith((".c", ".cu")):
                continue
            parts = [code] + [self.codes[p] for p in self.headers_of(path) if p.endswith(".c")]
            names = {name for part in parts for name in NAME.findall(part)}
            expanded = set()
            while more := (names & stands_for.keys()) - expanded:
                expanded |= more
                names |= set().union(*(stands_for[name] for name in more))
            names -= set(OWN.findall(code)) | defined(code)
            names &= set().union(*(offered[header] for header in self.headers_of(path)))
            for name in names & definers.keys():
                for definer in self.of_same_program(path, definers[name]):
                    self.need(path, definer, name)

    def texts_behind_names(self):
        """The names in the macros, and in the headers' inline functions, of each name."""
        names = collections.defaultdict(set)
        for path, code in self.codes.items():
            inlines = INLINE.finditer(code) if path.endswith((".h", ".cuh")) else ()
            for m in [*MACRO.finditer(code), *inlines]:
                names[m[1]].update(NAME.findall(m[2]))
        return names

    @staticmethod
    def of_same_program(path, definers):
        """Programs may define a name apart: then those of the same folder count, if there are any."""
        here = [d for d in definers if os.path.dirname(d) == os.path.dirname(path)]
        return definers if len(definers) == 1 else here

    def folders(self):
        """The same of folders: {folder: {folder: "file needs file"}}."""
        needs = collections.defaultdict(lambda: collections.defaultdict(set))
        for path, others in self.needs.items():
            for other in others:
                if os.path.dirname(path) != os.path.dirname(other):
                    needs[os.path.dirname(path)][os.path.dirname(other)].add(f"{path} needs {other}")
        return needs


def circles(needs):
    """The sets that need each other (Tarjan's strongly connected components)."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in needs.get(node, ()):
            if other not in index:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == index[node]:
            circle = stack[stack.index(node):]
            del stack[stack.index(node):]
            if len(circle) > 1:
                found.append(sorted(circle))

    for node in sorted(needs):
        if node not in index:
            visit(node)
    return sorted(found)


def self_test():
    """Circles by a call, a variable, an include and an import; what looks like one and is none."""
    tree = Tree({
        "lib/a/x.h": "struct y;\nint x_new(void);\n", "lib/a/y.h": '#include "x.h"\nint y_new(int);\nextern int y_last;\n',
        "lib/a/x.c": '#include "a/y.h"\nint x_new(void)\n{\n    return y_last;\n}\n',
        "lib/a/y.c": '#include "a/y.h"\nint y_last = 1;\nint y_new(int n)\n{\n    return x_new();\n}\n',
        "lib/b/p.h": '#include "q.h"\n', "lib/b/q.h": '#include "p.h"\n',
        # z.c is above x.c: a member, a tag, a comment, a string and a static function are no uses of it
        "lib/a/z.c": '#include "a/x.h"\nint z(void)\n{\n    return x_new();\n}\n',
        "lib/a/z.h": "int z(void);\n",
        "lib/a/w.c": '#include "a/z.h"\n/* z() */\nint w(struct z *s)\n{\n    return s->z + "z()"[0];\n}\n',
        # by an inline function that uses a macro of a macro
        "lib/e/i.h": "#define E_OUTER() E_INNER()\n#define E_INNER() e_j()\nint e_i(void);\nint e_j(void);\n"
                     "static inline int e_k(int n)\n{\n    return n + E_OUTER();\n}\n",
        "lib/e/i.c": '#include "e/i.h"\nint e_i(void)\n{\n    return e_k(1);\n}\n',
        "lib/e/j.c": '#include "e/i.h"\nint e_j(void)\n{\n    return e_i();\n}\n',
        "client/m.py": "from .n import (\n    f,\n)\nfrom . import (\n    o,\n)\n", "client/n.py": "def g():\n    from . import m\n", "client/o.py": "import m\n",
        "client/s.js": "import {\n    t,\n} from './t.js';\n", "client/t.js": "import { s } from './s.js';\n",
        "lib/c/u.h": '#include "d/v.h"\nvoid u(void);\n', "lib/d/v.h": "\n", "lib/d/v.c": '#include "c/u.h"\nint v(void)\n{\n    u();\n}\n',
    })
    found = circles(tree.needs) + circles(tree.folders())
    expected = [["client/m.py", "client/n.py", "client/o.py"], ["client/s.js", "client/t.js"], ["lib/a/x.c", "lib/a/y.c"],
                ["lib/b/p.h", "lib/b/q.h"], ["lib/e/i.c", "lib/e/j.c"], ["lib/c", "lib/d"]]
    assert found == expected, f"the check itself is wrong: it finds {found}, not {expected}"


def read_table(path):
    """FOLDER: FILES of one allowed circle each line, or "folders: FOLDERS"."""
    table = []
    for line in path.read_text().splitlines():
        folder, colon, names = line.split("#")[0].partition(":")
        if colon:
            table.append(sorted(n if folder == "folders" else f"{folder}/{n}" for n in names.split()))
    return table


def report(needs, circle):
    for one in circle:
        for other in sorted(needs[one].keys() & set(circle)):
            print(f"  {one} needs {other}: {', '.join(sorted(needs[one][other])[:5])}")


def main(root, table):
    self_test()
    paths = [p for f in FOLDERS for p in (root / f).rglob("*") if p.suffix in ENDINGS]
    tree = Tree({str(p.relative_to(root)): p.read_text(errors="replace") for p in paths})
    allowed = read_table(table)
    bad, found = 0, []
    for needs in (tree.needs, tree.folders()):
        for circle in circles(needs):
            found.append(circle)
            if circle not in allowed:
                print(f"a circle of {len(circle)} that is not in {table}:")
                report(needs, circle)
                bad += 1
    for circle in [c for c in allowed if c not in found]:
        print(f"{table} allows a circle that is not there, or is another one now: {' '.join(circle)}")
        bad += 1
    n = sum(len(others) for others in tree.needs.values())
    print(f"{len(tree.files)} files, {n} needs, {len(found)} circles, {bad} against the table")
    if len(tree.files) < 500 or n < 5000:
        print(f"found too little in {root}")
        return 1
    return 1 if bad else 0


if __name__ == "__main__":
    here = pathlib.Path(__file__).resolve().parent
    sys.exit(main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else here / "circles.txt"))
