"""Random templates from a small grammar, and random values for them: a seed gives always the same."""
import random

NAMES = ["s", "u", "v", "n", "x", "l", "ls", "d", "m", "b", "nil", "missing"]
TEXTS = ["", " ", "a", "\n", "\n\n", "  \n", "b\n  ", "<|im_start|>", "é", "\t", "x y\n", "{", "}", "%", "#", "'"]
STRINGS = ["''", "'a'", "'b'", '"it\'s"', "'\\n'", "'é東'", "' x '", "'a,b,c'", "'A'", "'%s'", "'role'", "'1'"]
METHODS = ["upper()", "lower()", "strip()", "lstrip('a')", "rstrip()", "split()", "split(',')", "split('a', 1)", "rsplit('b', 1)", "title()",
           "replace('a', 'bb')", "startswith('a')", "endswith('b')", "find('a')", "items()", "keys()", "get('a')", "get('z', 1)", "values()",
           "count('a')", "append(1)", "pop()", "pop(0)", "index('a')", "splitlines()", "capitalize()", "format(1, 'x')", "join(ls)", "partition('a')"]
FILTERS = ["upper", "lower", "trim", "length", "string", "default('z')", "default('z', true)", "join", "join(', ')", "items|list", "list", "first|string",
           "last|string", "tojson", "tojson(indent=2)", "tojson(ensure_ascii=true)", "sort", "reverse|list", "unique|list", "int", "float", "abs", "min|string", "max|string",
           "sum", "map('string')|list", "map(attribute='a')|list", "select|list", "reject('none')|list", "selectattr('a')|list", "selectattr('a', 'defined')|list",
           "rejectattr('role', 'equalto', 'user')|list", "dictsort", "replace('a', 'c')", "indent", "capitalize", "title", "truncate(4)", "wordcount", "count", "e|string",
           "map('upper')|list", "batch(2)|list", "round", "center(7)", "format(1)"]
TESTS = ["defined", "undefined", "none", "string", "number", "mapping", "sequence", "iterable", "boolean", "true", "false", "integer", "float", "odd",
         "even", "divisibleby(2)", "eq(1)", "in([1, 'a'])", "lower", "upper", "sameas(nil)", "gt(1)"]
OPERATORS = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", ">", "<=", ">=", "in", "not in", "and", "or"]


class Grammar:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.macros = []
        self.loops = 0

    def pick(self, *choices):
        return self.random.choice(choices)

    def atom(self):
        kind = self.random.randrange(10)
        if kind < 5:
            return self.random.choice(NAMES + (["loop.index", "loop.last", "loop.first", "loop.previtem", "loop.length"] if self.loops else []))
        if kind < 7:
            return self.random.choice(STRINGS)
        if kind < 9:
            return self.pick("0", "1", "2", "-1", "3.5", "1e3", "0.1", "true", "false", "none")
        return self.pick("[]", "{}", "[1, 'a', none]", "{'a': 1, 'b': [2.0]}", "(1, 2)", "()", "range(3)")

    def expression(self, depth=3):
        if depth == 0 or self.random.random() < 0.2:
            return self.atom()
        inner = lambda: self.expression(depth - 1)
        kind = self.random.randrange(13)
        if kind < 3:
            return f"({inner()} {self.random.choice(OPERATORS)} {inner()})"
        if kind == 3:
            return f"{inner()} {self.random.choice(OPERATORS)} {inner()}"
        if kind < 6:
            return f"({inner()})|{self.random.choice(FILTERS)}"
        if kind == 6:
            return f"({inner()} is {self.pick('', 'not ')}{self.random.choice(TESTS)})"
        if kind == 7:
            return f"({inner()}).{self.random.choice(METHODS)}"
        if kind == 8:
            if self.random.random() < 0.5: # of names only: Jinja folds the slice of a constant, and forgives there
                return f"{self.random.choice(NAMES)}[{self.pick('1:', ':-1', '::-1', '1:2', '::2')}]"
            return f"({inner()})[{self.pick('0', '-1', repr('a'), repr('role'), 'n')}]"
        if kind == 9:
            return f"({inner()}).{self.pick('a', 'role', 'b', 'zz', '0')}"
        if kind == 10:
            return f"({inner()} if {inner()} else {inner()})"
        if kind == 11:
            return f"({self.pick('not', '-')} {inner()})"
        if self.macros:
            return f"{self.random.choice(self.macros)}({inner()}{self.pick('', ', b=1', ', 2')})"
        return f"[{inner()}, {inner()}]"

    def tag(self, text):
        return "{%" + self.pick("", "", "-", "+") + f" {text} " + self.pick("", "", "", "-", "+") + "%}"

    def statement(self, depth):
        kind = self.random.randrange(12)
        if kind < 3 or depth == 0:
            return self.random.choice(TEXTS)
        if kind < 6:
            return "{{" + self.pick("", "-") + f" {self.expression()} " + self.pick("", "-") + "}}"
        if kind < 8:
            otherwise = self.tag("else") + self.body(depth - 1) if self.random.random() < 0.5 else ""
            return self.tag(f"if {self.expression()}") + self.body(depth - 1) + otherwise + self.tag("endif")
        if kind == 8:
            return self.loop(depth)
        if kind == 9:
            # No name of the request: Jinja forgets its value in loops before a `set` at the top.
            return self.tag(f"set {self.pick('v', 'w')} = {self.expression(2)}")
        if kind == 10:
            return self.pick("{# c #}", "{#- c -#}\n", "  {# c #}\n", "{% raw %}{{ x }}{% endraw %}", "{% set ns.a = ns.a ~ s %}", "{{ ns.a }}", "{{ v }}",
                             "{% set v %}t{{ n }}{% endset %}", "{% filter upper %}q{{ s }}{% endfilter %}")
        name = f"f{len(self.macros)}"
        loops, self.loops = self.loops, 0
        text = self.tag(f"macro {name}(a, b={self.atom()})") + self.body(depth - 1) + "{{ a }}{{ b }}" + self.tag("endmacro")
        self.loops = loops
        self.macros.append(name)
        return text

    def loop(self, depth):
        target, source = self.pick(("x", self.expression(2)), ("x", "l"), ("x", "m"), ("k, v", "d.items()"), ("x", "range(4)"))
        test = f" if {self.expression(2)}" if self.random.random() < 0.2 else ""
        self.loops += 1
        body = self.body(depth - 1)
        if self.random.random() < 0.2:
            body += "{% if " + self.expression(1) + " %}{% " + self.pick("break", "continue") + " %}{% endif %}" + self.body(depth - 1)
        self.loops -= 1
        otherwise = self.tag("else") + "none" if self.random.random() < 0.2 else ""
        return self.tag(f"for {target} in {source}{test}") + body + otherwise + self.tag("endfor")

    def body(self, depth):
        return "".join(self.statement(depth) for _ in range(self.random.randrange(1, 4)))

    def value(self, depth=2):
        kind = self.random.randrange(9 if depth else 6)
        if kind < 2:
            return self.random.choice(["", "a", "b,a", "Hello", "it's", '"', "é東😀", "<|im_end|>", " x ", "1", "2.5", "\n", "\u00a0", "A b c d e f"])
        if kind < 6:
            return self.pick(0, 1, 7, -2, 0.5, 1e20, True, False, None)
        if kind == 6:
            return [self.value(depth - 1) for _ in range(self.random.randrange(4))]
        return {k: self.value(depth - 1) for k in self.random.sample(["a", "b", "role", "c", "items"], self.random.randrange(4))}


def question(seed):
    g = Grammar(seed)
    request = {name: g.value() for name in NAMES if name not in ("missing", "nil", "v")}
    request["nil"] = None
    if g.random.random() < 0.8: # mostly of the type that the name promises
        request.update(s=g.pick("a,b", "Hello", ""), n=g.pick(0, 1, 5), l=g.pick([1, 2, 3], [], ["b", "a"]), d=g.pick({"a": 1, "b": None}, {}),
                       m=[{"role": "user", "a": 1}, {"role": "tool"}])
    return {"template": "{% set ns = namespace(a='') %}" + g.body(3) + g.body(3), "request": request, "now": 0}
