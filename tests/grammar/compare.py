"""Compares lib/grammar with other implementations: jsonschema (whether a document is valid) and
llguidance (whether a text is in a grammar), both from PyPI.

usage: compare.py GRAMMAR_ORACLE MODEL.gguf [--suite DIRECTORY] [--seed N] [--schemas N]

Exit code 77: one of the packages is not here. The suite is JSON-Schema-Test-Suite's
tests/draft2020-12; the source archive of jsonschema on PyPI contains it."""

import argparse
import datetime
import itertools
import json
import pathlib
import random
import re
import subprocess
import sys

try:
    import jsonschema
    import llguidance
except ImportError as missing:
    print(f"skipped: {missing} (pip install -r tests/grammar/requirements.txt)", file=sys.stderr)
    sys.exit(77)

SCHEMA, REGEX = 1, 2
UNSUPPORTED, USAGE, LIMIT = 3, 1, 11
failures = []


class Oracle:
    def __init__(self, program, model):
        self.process = subprocess.Popen([program, model], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def ask(self, kind, text, texts=(), walks=0, seed=1, loosen=False):
        question = {"kind": kind, "text": text, "texts": list(texts), "walks": walks, "seed": seed,
                    "loosen": loosen}
        self.process.stdin.write(json.dumps(question, ensure_ascii=True) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"the oracle ended at {question}")
        return json.loads(line)


def fail(*words):
    failures.append(words)
    if len(failures) <= 40:
        print("FAILED:", *words)


def whole_numbers(value):
    """1.0 as 1: the grammar writes integers without a point."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [whole_numbers(v) for v in value]
    if isinstance(value, dict):
        return {k: whole_numbers(v) for k, v in value.items()}
    return value


def orders(value, limit=200):
    """The value with its members in all orders: a grammar fixes one."""
    if isinstance(value, list):
        parts = [list(orders(v, limit)) for v in value]
        for choice in itertools.islice(itertools.product(*parts), limit):
            yield list(choice)
    elif isinstance(value, dict):
        for keys in itertools.islice(itertools.permutations(value), limit):
            parts = [list(orders(value[k], 8)) for k in keys]
            for choice in itertools.islice(itertools.product(*parts), limit):
                yield dict(zip(keys, choice))
    else:
        yield value


def texts_of(value):
    return [json.dumps(v, ensure_ascii=False) for v in
            itertools.islice(orders(whole_numbers(value)), 800)]


def beyond(value):
    """Values that the documented limits of numbers leave out."""
    if isinstance(value, (list, dict)):
        return any(beyond(v) for v in (value.values() if isinstance(value, dict) else value))
    if isinstance(value, int):
        return abs(value) >= 10**18
    return isinstance(value, float) and float(f"{value:.14g}") != value


def run_suite(oracle, directory):
    """Valid documents are accepted in some order of members, others in none."""
    cases = compiled = checked = 0
    paths = sorted(pathlib.Path(directory).glob("*.json"))
    paths += [pathlib.Path(directory) / "optional/format" / f"{name}.json" for name in FORMATS]
    for path in paths:
        if path.name == "format.json":
            continue  # expects formats to be annotations
        for case in json.loads(path.read_text()):
            cases += 1
            tests = [t for t in case["tests"] if not beyond(t["data"])]
            texts = [texts_of(t["data"]) for t in tests]
            answer = oracle.ask(SCHEMA, json.dumps(case["schema"]), sum(texts, []))
            where = f"{path.name}: {case['description']}"
            if "error" in answer:
                empty = answer["error"] == USAGE and "no answer" in answer["message"]
                if answer["error"] not in (UNSUPPORTED, LIMIT) and not empty:
                    fail(where, answer["message"])
                if empty and any(t["valid"] for t in tests):
                    fail(where, "is refused as empty")
                continue
            compiled += 1
            accepts = iter(answer["accepts"])
            for test, forms in zip(tests, texts):
                checked += 1
                accepted = any([next(accepts) for _ in forms])
                if path.parent.name == "format" and not accepted:
                    continue  # documented: formats leave some forms out
                if accepted != test["valid"]:
                    fail(where, "|", test["description"], "|", forms[0], "accepted:", accepted)
    print(f"suite: {compiled} of {cases} schemas supported, {checked} documents")
    if compiled < cases / 4 or checked < 300:
        fail("suite", "too few schemas were supported")


# -- Random schemas --

PATTERNS = ["^[a-z]{2,4}$", "^x", "b+$", "^(foo|bar)-[0-9]+$", "[0-9]", "^[^a]*$", "^.{1,3}$",
            "^\\S+@\\S+$", "^(a|b|ab)*c?$"]
FORMATS = ["date", "time", "date-time", "uuid", "ipv4", "ipv6", "email", "uri", "hostname",
           "duration", "json-pointer", "uri-reference"]
KEYS = ["a", "ab", "b", "name", "x1", "\u00e9", "with \"quote\"", ""]
WORDS = ["", "a", "b", "xa", "ab", "foo-1", "bar-77", "abc", "a b", "a@b", "\u00e9\u20ac", "c\nd", "9",
         "2024-02-29", "1900-02-29", "12:30:00Z", "1.2.3.4", "::1", "P1DT2H", "/a~0b", "http://a.b/c",
         "123e4567-e89b-12d3-a456-426614174000", "2024-01-01T00:00:00Z", "aabbc"]
NUMBERS = [0, 1, -1, 5, 7, 10, 12, 99, 100, -20, 0.5, 1.5, 2.25, -0.75, 3.14, 1000]


def random_number(r):
    schema = {"type": r.choice(["integer", "number"])}
    for keyword in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
        if r.random() < 0.3:
            schema[keyword] = r.choice(NUMBERS)
    if r.random() < 0.2:
        schema["multipleOf"] = r.choice([1, 2, 3, 5, 7, 0.5, 0.25, 10])
    return schema


def random_string(r):
    schema = {"type": "string"}
    if r.random() < 0.3:
        schema["minLength"] = r.randint(0, 4)
    if r.random() < 0.3:
        schema["maxLength"] = r.randint(2, 40)
    if r.random() < 0.4:
        schema["pattern"] = r.choice(PATTERNS)
    elif r.random() < 0.3:
        schema["format"] = r.choice(FORMATS)
    return schema


def random_object(r, depth):
    keys = r.sample(KEYS, r.randint(0, 4))
    schema = {"type": "object", "properties": {k: random_schema(r, depth - 1) for k in keys},
              "required": [k for k in keys if r.random() < 0.5]}
    if r.random() < 0.6:
        schema["additionalProperties"] = r.choice([False, False, random_schema(r, 0)])
    if r.random() < 0.2:
        schema["patternProperties"] = {r.choice(["^a", "b$", "[0-9]"]): random_schema(r, 0)}
    if r.random() < 0.2:
        schema["minProperties"] = r.randint(0, 2)
    if r.random() < 0.2:
        schema["maxProperties"] = r.randint(1, 4)
    if r.random() < 0.1:
        schema["propertyNames"] = {"pattern": r.choice(["^[a-z0-9]*$", "a"])}
    return schema


def random_array(r, depth):
    schema = {"type": "array"}
    if r.random() < 0.7:
        schema["items"] = random_schema(r, depth - 1)
    if r.random() < 0.3:
        schema["prefixItems"] = [random_schema(r, 0) for _ in range(r.randint(1, 3))]
    if r.random() < 0.4:
        schema["minItems"] = r.randint(0, 3)
    if r.random() < 0.4:
        schema["maxItems"] = r.randint(1, 25)
    return schema


def random_schema(r, depth):
    kind = r.random()
    if depth > 0 and kind < 0.35:
        return random_object(r, depth)
    if depth > 0 and kind < 0.5:
        return random_array(r, depth)
    if depth > 0 and kind < 0.6:
        return {"anyOf": [random_schema(r, depth - 1) for _ in range(2)]}
    if depth > 0 and kind < 0.65:
        return {"allOf": [random_schema(r, depth - 1), random_schema(r, depth - 1)]}
    if depth > 0 and kind < 0.72:
        return {"oneOf": [random_schema(r, depth - 1) for _ in range(2)]}
    if kind < 0.8:
        return random_string(r)
    if kind < 0.9:
        return random_number(r)
    if kind < 0.95:
        return {"enum": r.sample(WORDS + NUMBERS + [None, True], 3)}
    return r.choice([True, {"type": "null"}, {"type": ["boolean", "integer"]}, {"const": "a"}])


def random_value(r, schema, depth=3):
    """A document that often satisfies the schema."""
    if not isinstance(schema, dict) or r.random() < 0.05:
        schema = {"type": r.choice(["null", "boolean", "integer", "string", "array", "object"])}
    for keyword in ("anyOf", "oneOf", "allOf"):
        if keyword in schema:
            return random_value(r, r.choice(schema[keyword]), depth)
    if "enum" in schema or "const" in schema:
        return r.choice(schema.get("enum", [schema.get("const")]))
    kind = schema.get("type", "null")
    kind = r.choice(kind) if isinstance(kind, list) else kind
    if kind == "string":
        return r.choice(WORDS) * r.choice([1, 1, 1, 2, 5])
    if kind in ("integer", "number"):
        bound = schema.get("minimum", schema.get("maximum", r.choice(NUMBERS)))
        return whole_numbers(r.choice([bound, bound + 1, bound - 1, r.choice(NUMBERS), bound * 2]))
    if kind == "array" and depth:
        prefix = schema.get("prefixItems", [])
        return [random_value(r, prefix[i] if i < len(prefix) else schema.get("items", True),
                             depth - 1) for i in range(r.randint(0, 4))]
    if kind == "object" and depth:
        named = schema.get("properties", {})
        keys = [k for k in named if k in schema.get("required", []) or r.random() < 0.5]
        keys += [k for k in r.sample(KEYS, 2) if k not in keys and r.random() < 0.3]
        return {k: random_value(r, named.get(k, schema.get("additionalProperties", True)),
                                depth - 1) for k in keys}
    return r.choice([None, True, False])


def random_documents(r, schema):
    """Values near a schema, and the texts of each."""
    values = [v for v in (random_value(r, schema) for _ in range(12)) if not beyond(v)]
    return values, [texts_of(v) for v in values]


def judged(answer, values, texts):
    """Each value with its texts, and whether one of them was accepted."""
    accepts = iter(answer["accepts"])
    for value, forms in zip(values, texts):
        yield value, forms, any([next(accepts) for _ in forms])


def sure(schema):
    """Does jsonschema judge this schema as the specification does? Its formats are other ones."""
    return "format" not in json.dumps(schema)


class Guidance:
    def __init__(self):
        self.tokenizer = llguidance.LLTokenizer("byte")
        self.compared = 0

    def check(self, schema, text):
        if "\x7f" in text or "\\u" in text or "\\/" in text:
            return  # llguidance leaves these forms of characters out
        grammar = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema))
        matcher = llguidance.LLMatcher(self.tokenizer, grammar)
        if matcher.is_error():
            return
        self.compared += 1
        tokens = self.tokenizer.tokenize_bytes(text.encode())
        taken = matcher.try_consume_tokens(tokens)
        if taken != len(tokens) or not matcher.is_accepting():
            fail("llguidance refuses", text, "of", json.dumps(schema), "at", taken)


def run_random(oracle, seed, n_schemas):
    r = random.Random(seed)
    guidance = Guidance()
    supported = documents = valid = walks = unfinished = 0
    for i in range(n_schemas):
        schema = random_schema(r, 3)
        validator = jsonschema.Draft202012Validator(
            schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
        values, texts = random_documents(r, schema)
        answer = oracle.ask(SCHEMA, json.dumps(schema), sum(texts, []), 3, seed + i)
        if "error" in answer:
            if answer["error"] not in (UNSUPPORTED, LIMIT) and "no answer" not in answer["message"]:
                fail(json.dumps(schema), answer["message"])
            if "no answer" in answer["message"] and sure(schema):
                for value in values:
                    if validator.is_valid(value):
                        fail("refused as empty", json.dumps(schema), "but valid:", value)
            continue
        supported += 1
        for value, forms, accepted in judged(answer, values, texts):
            documents += 1
            expected = validator.is_valid(value)
            valid += expected
            if accepted != expected and (sure(schema) or accepted):
                fail(json.dumps(schema), "|", forms[0], "valid:", expected, "accepted:", accepted)
        for text in answer["walks"]:
            walks += 1
            if text is None:
                unfinished += 1
                continue
            error = jsonschema.exceptions.best_match(validator.iter_errors(json.loads(text)))
            if error:
                fail("walk", text, "through", json.dumps(schema), "|", error.message)
            else:
                guidance.check(schema, text)
    print(f"random: {supported} of {n_schemas} schemas supported, {documents} documents "
          f"({valid} valid), {walks} walks ({unfinished} unfinished), "
          f"{guidance.compared} compared with llguidance")
    if supported < n_schemas / 2 or unfinished > walks / 10 or valid < documents / 10:
        fail("random", "the schemas or documents test too little")


# What requests look like: a tool's arguments, an extraction, a tree, a union by a tag.
REAL = [
    {"type": "object", "properties": {
        "location": {"type": "string", "description": "City"},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 14}},
     "required": ["location", "unit"], "additionalProperties": False},
    {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Person", "type": "object",
     "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 40},
                    "born": {"type": "string", "format": "date"},
                    "mail": {"anyOf": [{"type": "string", "format": "email"}, {"type": "null"}],
                             "default": None},
                    "tags": {"type": "array", "items": {"type": "string", "pattern": "^[a-z]+$"},
                             "maxItems": 5},
                    "score": {"type": "number", "minimum": 0, "maximum": 1}},
     "required": ["name", "born", "mail", "tags", "score"], "additionalProperties": False},
    {"$ref": "#/$defs/node", "$defs": {"node": {
        "type": "object", "properties": {
            "value": {"type": "integer"},
            "children": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 3}},
        "required": ["value", "children"], "additionalProperties": False}}},
    {"oneOf": [
        {"type": "object", "properties": {"kind": {"const": "circle"},
                                          "radius": {"type": "number", "exclusiveMinimum": 0}},
         "required": ["kind", "radius"], "additionalProperties": False},
        {"type": "object", "properties": {"kind": {"const": "square"},
                                          "side": {"type": "number", "exclusiveMinimum": 0}},
         "required": ["kind", "side"], "additionalProperties": False}]},
]


def run_real(oracle, seed):
    guidance = Guidance()
    for schema in REAL:
        validator = jsonschema.Draft202012Validator(
            schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
        answer = oracle.ask(SCHEMA, json.dumps(schema), (), 20, seed)
        if "error" in answer:
            fail(json.dumps(schema), answer["message"])
            continue
        for text in filter(None, answer["walks"]):
            for error in validator.iter_errors(json.loads(text)):
                fail("walk", text, error.message)
            guidance.check(schema, text)
        if answer["walks"].count(None) > 5:
            fail("walks do not end:", json.dumps(schema))
    print(f"real: {len(REAL)} schemas, {guidance.compared} walks compared with llguidance")


def run_regexes(oracle, seed):
    """Against llguidance's expressions, which are anchored too; texts by walks and by words."""
    r = random.Random(seed)
    tokenizer = llguidance.LLTokenizer("byte")
    n = 0
    pieces = ["a", "b", "[ab]", "[^a]", "(a|bc)", "(ab)?", "a*", "(b|c)+", "c{1,3}", ".", "\\d",
              "\u00e9"]
    for i in range(60):
        expression = "".join(r.choice(pieces) for _ in range(r.randint(1, 5)))
        words = ["".join(r.choice("abc1\u00e9") for _ in range(r.randint(0, 6))) for _ in range(20)]
        answer = oracle.ask(REGEX, expression, words, 3, seed + i)
        if "error" in answer:
            fail(expression, answer["message"])
            continue
        pairs = list(zip(words, answer["accepts"])) + [(w, True) for w in answer["walks"] if w]
        for text, accepted in pairs:
            matcher = llguidance.LLMatcher(
                tokenizer, llguidance.LLMatcher.grammar_from_regex(expression))
            tokens = tokenizer.tokenize_bytes(text.encode())
            whole = matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()
            n += 1
            if whole != accepted and "\u2028" not in text and "\u2029" not in text \
                    and "\r" not in text:
                fail("regex", expression, repr(text), "llguidance:", whole, "moed:", accepted)
    print(f"regular expressions: {n} texts compared with llguidance")


def parsers_of_times():
    """Pydantic's, which read all four; without it Python's own, which read no durations."""
    try:
        import pydantic
    except ImportError:
        return {"date": datetime.date.fromisoformat, "time": datetime.time.fromisoformat,
                "date-time": datetime.datetime.fromisoformat}
    types = {"date": datetime.date, "time": datetime.time, "date-time": datetime.datetime,
             "duration": datetime.timedelta}
    return {name: pydantic.TypeAdapter(type).validate_python for name, type in types.items()}


LATEST = ["9999-12-31", "23:59:59.999999999-23:59", "9999-12-31T23:59:59.999999999Z",
          "P999999Y999999M99999999DT999999H999999M99999999S", "P999999W"]


def run_times(oracle, seed):
    """Python reads what the formats allow. Its first year is 1, and a timedelta has a limit."""
    parsers = parsers_of_times()
    n = 0
    for name, parse in parsers.items():
        schema = {"type": "string", "format": name}
        answer = oracle.ask(SCHEMA, json.dumps(schema), [json.dumps(t) for t in LATEST], 200, seed)
        texts = [t for t, accepted in zip(LATEST, answer["accepts"]) if accepted]
        if not texts:
            fail("format", name, "does not allow its largest value")
        for text in texts + [json.loads(t) for t in answer["walks"] if t]:
            n += 1
            try:
                parse(text)
            except ValueError as error:
                fail("format", name, text, error)
    print(f"formats of times: {n} texts read by Python in {len(parsers)} formats")


# -- Older drafts, and schemas that are made looser --

def in_draft_4(r, schema):
    """The same schema as draft 4 writes it; Google's SDKs write types in capitals."""
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    if not isinstance(schema, dict):
        return schema
    out = {}
    for keyword, value in schema.items():
        if keyword in ("properties", "patternProperties"):
            out[keyword] = {k: in_draft_4(r, v) for k, v in value.items()}
        elif keyword in ("anyOf", "allOf", "oneOf"):
            out[keyword] = [in_draft_4(r, v) for v in value]
        elif keyword == "additionalProperties" and value is not False:
            out[keyword] = in_draft_4(r, value)
        elif keyword == "const":
            out["enum"] = [value]
        elif keyword not in ("prefixItems", "items", "exclusiveMinimum", "exclusiveMaximum",
                             "propertyNames"):
            out[keyword] = value
    if "prefixItems" in schema:
        out["items"] = [in_draft_4(r, v) for v in schema["prefixItems"]]
        if "items" in schema:
            out["additionalItems"] = in_draft_4(r, schema["items"])
    elif "items" in schema:
        out["items"] = in_draft_4(r, schema["items"])
        out["additionalItems"] = False
    for bound in ("minimum", "maximum"):
        exclusive = "exclusive" + bound.capitalize()
        if exclusive in schema and bound not in schema:
            out[bound] = schema[exclusive]
            out[exclusive] = True
        elif bound in schema:
            out[exclusive] = False
    if out.get("required") == []:
        del out["required"]
    return out


def run_draft_4(oracle, seed, n_schemas):
    """Rewritten schemas mean the same: what jsonschema finds valid in draft 4 is accepted."""
    r = random.Random(seed)
    checked = exact = 0
    for i in range(n_schemas):
        modern = random_schema(r, 3)
        schema = in_draft_4(r, modern)
        validator = jsonschema.Draft4Validator(schema)
        values, texts = random_documents(r, modern)
        answer = oracle.ask(SCHEMA, json.dumps(schema), sum(texts, []), 3, seed + i, loosen=True)
        if "error" in answer:
            if "no answer" not in answer["message"] or (
                    sure(schema) and any(map(validator.is_valid, values))):
                fail(json.dumps(schema), answer["message"])
            continue
        same = answer["removed"] == 0 and "oneOf" not in json.dumps(schema)
        exact += same
        for value, forms, accepted in judged(answer, values, texts):
            expected = validator.is_valid(value)
            checked += 1
            if not sure(schema):
                continue
            if expected and not accepted or accepted and not expected and same:
                fail("draft 4:", json.dumps(schema), "as", answer["loosened"], "|", forms[0],
                     "valid:", expected, "accepted:", accepted)
        for text in answer["walks"]:
            if text and same and not validator.is_valid(json.loads(text)):
                fail("walk", text, "through", json.dumps(schema))
    print(f"draft 4: {exact} of {n_schemas} schemas rewritten, {checked} documents")


def spoil(r, schema):
    """Adds keywords that moed does not follow, and malformed ones."""
    if isinstance(schema, list):
        return [spoil(r, v) for v in schema]
    if not isinstance(schema, dict):
        return schema
    out = {k: ({n: spoil(r, v) for n, v in value.items()}
               if k in ("properties", "patternProperties") else
               value if k in ("enum", "const", "required", "type") else spoil(r, value))
           for k, value in schema.items()}
    if r.random() < 0.5:
        out.update(r.choice([
            {"uniqueItems": True}, {"not": {"const": 77}}, {"contains": {}, "minContains": 0},
            {"minProperties": 3}, {"multipleOf": 1e-30}, {"pattern": "(?!zz)"}, {"$id": "x:y"},
            {"if": {"type": "null"}, "then": {}}, {"format": "password"},
            {"anyOf": [{"not": {}}, {}]}, {"oneOf": [{}, {"not": {}}], "anyOf": [{}]},
            {"patternProperties": {f"^{c}": {"type": ["string", "integer"]} for c in "pqrst"}},
            {"propertyNames": {"anyOf": [{"minLength": 1}, {"const": ""}]}},
            {"patternProperties": {"^(?!a)": {}}, "additionalProperties": False},
            {"enum": [{"a": 1}, [1], "a", 5, None]}, {"dependentRequired": {"a": ["b"]}}]))
    return out


def run_loose(oracle, seed, n_schemas):
    """What is valid stays possible, and nothing is refused but what no value satisfies."""
    r = random.Random(seed)
    checked = valid = 0
    for i in range(n_schemas):
        plain = random_schema(r, 3)
        schema = spoil(r, plain)
        validator = jsonschema.Draft202012Validator(schema)
        values, texts = random_documents(r, plain)
        answer = oracle.ask(SCHEMA, json.dumps(schema), sum(texts, []), 0, seed + i, loosen=True)
        if "error" in answer:
            if "no answer" not in answer["message"] or (
                    sure(plain) and any(map(validator.is_valid, values))):
                fail("loosened:", json.dumps(schema), "as", answer["loosened"], answer["message"])
            continue
        for value, forms, accepted in judged(answer, values, texts):
            checked += 1
            if sure(plain) and validator.is_valid(value):
                valid += 1
                if not accepted:
                    fail("loosened:", json.dumps(schema), "as", answer["loosened"], "|", forms[0])
    print(f"loosened: {n_schemas} schemas, {checked} documents, {valid} valid")


def run_python_regexes(oracle, seed):
    """Spellings of Python, against its re."""
    r = random.Random(seed)
    pieces = ["a", "[ab]", "(?P<n>a|bc)", "b*", "\\Ab", "a\\Z", ".", "(?:b|c\\Z)", "c?"]
    for i in range(60):
        chosen = [r.choice(pieces) for _ in range(r.randint(1, 5))]
        expression = r.choice(["", "(?s)"]) + "".join(
            p.replace("<n>", f"<n{k}>") for k, p in enumerate(chosen))
        words = ["".join(r.choice("abc\n") for _ in range(r.randint(0, 6))) for _ in range(30)]
        answer = oracle.ask(REGEX, expression, words)
        if "error" in answer:
            if "no answer" not in answer["message"] or any(re.fullmatch(expression, w)
                                                           for w in words):
                fail(expression, answer["message"])
            continue
        for word, accepted in zip(words, answer["accepts"]):
            if bool(re.fullmatch(expression, word)) != accepted:
                fail("regex", expression, repr(word), "accepted:", accepted)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("oracle")
    parser.add_argument("model")
    parser.add_argument("--suite")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--schemas", type=int, default=150)
    arguments = parser.parse_args()
    oracle = Oracle(arguments.oracle, arguments.model)
    if arguments.suite:
        run_suite(oracle, arguments.suite)
    run_real(oracle, arguments.seed)
    run_regexes(oracle, arguments.seed)
    run_times(oracle, arguments.seed)
    run_random(oracle, arguments.seed, arguments.schemas)
    run_draft_4(oracle, arguments.seed, arguments.schemas)
    run_loose(oracle, arguments.seed, arguments.schemas)
    run_python_regexes(oracle, arguments.seed)
    if failures:
        sys.exit(f"{len(failures)} failures")


main()
