"""What python3-jinja2 makes of a template, with the settings of transformers' apply_chat_template.

One difference: lists may be changed by a template (`append`, `pop`), which transformers' sandbox refuses."""
import datetime
import json
import warnings

import jinja2
import jinja2.ext
import jinja2.sandbox
from jinja2 import nodes

warnings.simplefilter("ignore", SyntaxWarning) # of the Python that jinja2 makes


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_text"), [], [], body).set_lineno(line)

    def _text(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment(now):
    e = jinja2.sandbox.SandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    e.filters["tojson"] = tojson
    e.filters["from_json"] = json.loads
    e.globals["raise_exception"] = raise_exception
    e.globals["strftime_now"] = lambda f: datetime.datetime.fromtimestamp(now).strftime(f)
    del e.globals["lipsum"]
    return e


def render(question, compiled={}):
    """{"text"} or {"error", "line"}: as jinja-render answers."""
    now = question.get("now", 0)
    try:
        if (question["template"], now) not in compiled:
            compiled[question["template"], now] = environment(now).from_string(question["template"])
        template = compiled[question["template"], now]
        return {"text": template.render(**json.loads(json.dumps(question["request"])), **question.get("trusted", {}))}
    except Exception as e:
        return {"error": f"{type(e).__name__}: {e}", "message": str(e)}
