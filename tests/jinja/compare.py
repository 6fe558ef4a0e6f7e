#!/usr/bin/env python3
"""lib/jinja beside python3-jinja2: the same text or an error in both, and the request's bytes marked.

usage: compare.py JINJA-RENDER [TEMPLATES] [--random N] [--seed S]: the folder's *.jinja with conversations.py's
conversations, templates.py's templates, and N generated ones. Exit code 77: jinja2 is not here."""
import argparse
import json
import os
import pathlib
import subprocess
import sys

try:
    import oracle
except ImportError as e:
    print(f"skipped: {e} (package python3-jinja2)", file=sys.stderr)
    sys.exit(77)
import conversations
import generate
import templates


def ask(program, questions):
    lines = "".join(json.dumps(q) + "\n" for q in questions)
    done = subprocess.run([program], input=lines, capture_output=True, text=True, timeout=500,
                          env={**os.environ, "TZ": "UTC"})
    replies = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode or len(replies) != len(questions):
        sys.exit(f"{program} ended with {done.returncode} after {len(replies)} of {len(questions)}: {done.stderr}")
    return replies


def raised(question):
    """The message of raise_exception, which both have to the letter; None: of another error."""
    message = question.get("message", "")
    return message if question["error"].startswith("TemplateError:") else None


def difference(expected, got):
    """A line that says what differs, or None."""
    if "error" in expected and "error" in got:
        text = raised(expected)
        same = text is None or " ".join(text.split())[:200] in " ".join(got["error"].replace("?", " ").split()) or \
            text.replace("\n", "?") in got["error"]
        return None if same else f"another message: {expected['error']!r} and {got['error']!r}"
    if "error" in expected or "error" in got:
        return f"Python: {str(expected)[:600]}\n  ours: {str(got)[:600]}"
    a, b = expected["text"], got["text"]
    if a == b:
        return None
    at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    return f"at {at}:\n  Python: {a[max(0, at - 60):at + 80]!r}\n  ours:   {b[max(0, at - 60):at + 80]!r}"


def all_questions(arguments):
    paths = sorted(pathlib.Path(arguments.templates).glob("*.jinja")) if arguments.templates else []
    for path in paths:
        for name, question in conversations.questions(path.read_text()):
            yield f"{path.name}, {name}", question
    for name, question in templates.questions():
        yield name, question
    for i in range(arguments.random):
        yield f"seed {arguments.seed + i}", generate.question(arguments.seed + i)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("templates", nargs="?")
    parser.add_argument("--random", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=10)
    arguments = parser.parse_args()
    if arguments.templates and not list(pathlib.Path(arguments.templates).glob("*.jinja")):
        print(f"skipped: no templates in {arguments.templates}", file=sys.stderr)
        sys.exit(77)
    os.environ["TZ"] = "UTC"
    names, questions = zip(*all_questions(arguments))
    wrong = errors = 0
    for name, question, got in zip(names, questions, ask(arguments.program, questions)):
        expected = oracle.render(question)
        errors += "error" in expected
        why = difference(expected, got)
        if not why:
            continue
        wrong += 1
        if wrong <= arguments.show:
            print(f"{name}: {why}")
            if name.startswith("seed"):
                print(question["template"])
    print(f"{len(questions)} renders, {errors} of them errors in both; {wrong} differ")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
