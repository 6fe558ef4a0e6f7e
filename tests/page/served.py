"""The page as moed-http serves it: types, entity tags, policy, size; and what its sources must not do.

usage: served.py PORT KEY FOLDER   (FOLDER: client/http/page; the server needs KEY)"""
import hashlib
import http.client
import pathlib
import re
import sys

PORT, KEY, FOLDER = int(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
         ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
MAX_BYTES = 200_000


def call(method, path, **headers):
    c = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
    c.request(method, path, headers={k.replace("_", "-"): v for k, v in headers.items()})
    reply = c.getresponse()
    body = reply.read()
    c.close()
    return reply.status, {k.lower(): v for k, v in reply.getheaders()}, body


def check_policy(head):
    policy = dict((part.split(None, 1) + [""])[:2] for part in head["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'" and policy["frame-ancestors"] == "'none'", policy
    assert policy["base-uri"] == policy["form-action"] == "'none'", policy
    for kind in ("script-src", "style-src", "img-src", "connect-src"):
        assert policy[kind] == "'self'", policy
    assert policy["require-trusted-types-for"] == "'script'" and policy["trusted-types"] == "'none'", policy
    assert head["x-content-type-options"] == "nosniff" and head["referrer-policy"] == "no-referrer", head


def check_file(path, file):
    data = file.read_bytes()
    status, head, body = call("GET", path, Accept="text/html,*/*")
    assert status == 200 and body == data, path
    assert head["content-type"] == TYPES[file.suffix], (path, head)
    assert head["etag"] == f'"{hashlib.sha256(data).hexdigest()}"' and head["cache-control"] == "no-cache", head
    check_policy(head)
    tag = head["etag"]
    for field in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        status, again, body = call("GET", path, Accept="text/html", If_None_Match=field)
        assert status == 304 and not body and again["etag"] == tag, (path, field, status)
        check_policy(again)
    for field in ('"other"', tag.strip('"'), "", tag[:-2] + '"'):
        assert call("GET", path, Accept="text/html", If_None_Match=field)[0] == 200, (path, field)
    status, only_head, body = call("HEAD", path, Accept="text/html")
    assert status == 200 and not body and int(only_head["content-length"]) == len(data), (path, only_head)
    status, head, _ = call("POST", path, Content_Length="0")
    assert status in (401, 405), (path, status)


def check_sources(files):
    """What the policy forbids at run time, and what would make markup or programs of a text, is not in the sources."""
    for file in files:
        text = file.read_text()
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function",
                     "DOMParser", "createContextualFragment", "srcdoc"):
            assert word not in text, f"{file.name} has {word}"
        for url in re.findall(r"""(?:https?:)?//[\w.-]+\.[a-z]+""", re.sub(r"^\s*(//|/?\*).*$", "", text, flags=re.M)):
            assert url.endswith("www.w3.org"), f"{file.name} names {url}"
        if file.suffix == ".html":
            assert not re.search(r"\son\w+=|\sstyle=|javascript:|<style|<script(?![^>]*\ssrc=)", text), "inline script or style"
        if file.suffix == ".js":
            for module in re.findall(r"""(?:from|import) '([^']*)'""", text):
                assert (FOLDER / module).exists(), f"{file.name} imports {module}"


files = sorted(FOLDER.iterdir())
assert sum(file.stat().st_size for file in files) < MAX_BYTES
check_sources(files)
for file in files:
    check_file(f"/page/{file.name}", file)
check_file("/", FOLDER / "index.html")
for name in re.findall(r'(?:src|href)="(page/[^"]+)"', (FOLDER / "index.html").read_text()):
    assert call("GET", f"/{name}")[0] == 200, name

# What is not the page: Ollama's clients ask for / too; other names; the data, which needs the key.
status, head, body = call("GET", "/")
assert (status, body, head["vary"]) == (200, b"moed is running", "Accept"), (status, head, body)
assert call("GET", "/", Accept="text/html")[1]["vary"] == "Accept"
for path in ("/page/none.js", "/page/../auth.c", "/page/%2e%2e/api/page.c", "/page/app.js/", "/page/a" + "b" * 300):
    assert call("GET", path)[0] == 404, path
assert call("GET", "/page/")[0] in (401, 404)
assert call("GET", "/v1/models")[0] == 401
assert call("GET", "/v1/models", Authorization=f"Bearer {KEY}")[0] == 200
print(f"{len(files)} files, {sum(file.stat().st_size for file in files)} bytes")
