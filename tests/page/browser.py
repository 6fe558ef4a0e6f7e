"""The page in a browser. usage: browser.py URL RUN PAGE WORK [SCREENSHOTS]

URL, RUN: a deployment of the demo model and its runtime directory. PAGE: the page's files, for a server of our own."""
import json
import os
import pathlib
import signal
import sys
import time
import urllib.request

import fake_server
import page_cases
from page_driver import Keys, Page

URL, RUN, PAGE, WORK = sys.argv[1], *map(pathlib.Path, sys.argv[2:5])
SHOTS = pathlib.Path(sys.argv[5]) if len(sys.argv) > 5 else None


def api(path, **body):
    request = urllib.request.Request(URL.rstrip("/") + path, data=json.dumps(body).encode() if body else None,
                                     headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.load(reply)


def policy_of_page():
    request = urllib.request.Request(URL, headers={"Accept": "text/html"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        return reply.headers["Content-Security-Policy"]


def shot(page, name):
    if SHOTS:
        page.driver.save_screenshot(str(SHOTS / f"{name}.png"))




def truth(*messages):
    """What the API answers to this conversation at temperature 0."""
    whole = [{"role": "user" if i % 2 == 0 else "assistant", "content": text} for i, text in enumerate(messages)]
    reply = api("/v1/chat/completions", model="demo", messages=whole, temperature=0, max_tokens=40)
    return reply["choices"][0]["message"]["content"]


def squeezed(text):
    return " ".join(text.split())


# ---- With a real deployment ----

def settings_of_test(page):
    page.click("Settings")
    page.set("#set-temperature", "0")
    page.set("#set-max_tokens", "40")
    page.click("Settings")


def chat(page):
    first = "What is 2 plus 3?"
    page.ask(first)
    answer = page.answered()
    assert answer and squeezed(answer) == squeezed(truth(first)), (answer, truth(first))
    figures = page.texts(".message.assistant .figures")[-1]
    assert "token" in figures and "first after" in figures and "prompt" in figures, figures
    page.ask("And what day follows Monday?")
    assert squeezed(page.answered()) == squeezed(truth(first, answer, "And what day follows Monday?"))
    assert len(page.all(".message")) == 4
    used = page.text("#context")
    assert used.startswith("Context: ") and used.endswith("of 65,536 tokens"), used


def edit_and_branch(page):
    before = page.texts(".message .body")
    page.press(Keys.ALT + "e")
    field = page.one(".edit textarea")
    assert field == page.driver.switch_to.active_element, "the focus is not in the edited question"
    assert field.get_attribute("value") == "And what day follows Monday?"
    field.clear()
    field.send_keys("Tell me a story.", Keys.ENTER)
    page.wait(lambda: "Tell me a story." in page.texts(".message.user .body"), "the edited question")
    edited = page.answered()
    assert squeezed(edited) == squeezed(truth(before[0], before[1], "Tell me a story."))
    assert page.texts(".branch span") == ["2 of 2"], page.texts(".branch span")
    page.click("Earlier version")
    assert page.texts(".message .body") == before
    page.click("Later version")
    assert page.texts(".message .body")[-1] == edited
    page.click("Regenerate", ".message:last-child")
    assert squeezed(page.answered()) == squeezed(edited)  # temperature 0
    assert page.texts(".branch span") == ["2 of 2", "2 of 2"]


def map_of_demo(page):
    """The demo model's experts, each in one place, and the processes that run."""
    page.click("Experts")
    page.wait(lambda: "8 layers of 32 experts, 4 used by a token" in (page.text("#watch .muted") or ""), "the map")
    assert sum(map(int, page.texts(".legend .value"))) == 8 * 32
    page.wait(lambda: {"memd", "worker", "http"} <= set(page.texts(".processes th button")), "the processes")
    page.click("Experts")


def reload_keeps(page):
    before = page.texts(".message .body")
    page.open(URL)
    page.wait(lambda: page.texts(".message .body") == before, "the conversation after a reload")
    assert page.texts(".branch span") == ["2 of 2", "2 of 2"]


def injected_text_stays_text(page):
    question = "<img src=x onerror='window.pwned=1'><script>window.pwned=1</script>"
    page.click("New conversation")
    page.ask(question)
    page.answered()
    assert page.texts(".message.user .body")[-1] == question
    assert page.texts("#conversations .title")[0].startswith("<img src=x")
    assert page.js("return window.pwned") is None
    assert not page.all("#messages img, #messages script, #conversations img")


def search_delete_undo(page):
    assert len(page.all("#conversations .open")) == 2
    page.one("#search").send_keys("follows monday")
    page.wait(lambda: len(page.all("#conversations .open")) == 1, "one conversation is found")
    page.one("#search").send_keys(" nothing")
    page.wait(lambda: page.one("#no-conversations").is_displayed(), "nothing is found")
    page.one("#search").clear()
    page.one("#search").send_keys("x", Keys.BACKSPACE)
    page.wait(lambda: len(page.all("#conversations .open")) == 2, "all conversations again")
    page.js("document.querySelector('#conversations li.current .quiet').click()")
    page.wait(lambda: len(page.all("#conversations .open")) == 1, "one is deleted")
    page.click("Undo", "#notices")
    page.wait(lambda: len(page.all("#conversations .open")) == 2, "it is back")


def export_and_import(page):
    page.click("Export")
    path = os.path.join(page.downloads, "moed-conversations.json")
    page.wait(lambda: os.path.exists(path), "a file is exported")
    with open(path, encoding="utf-8") as file:
        exported = json.load(file)
    assert exported["format"] == "moed conversations" and len(exported["conversations"]) == 2
    page.js("document.getElementById('import-file').hidden = false")
    page.one("#import-file").send_keys(path)
    page.wait(lambda: len(page.all("#conversations .open")) == 4, "the imported conversations")
    wrong = WORK / "wrong.json"
    wrong.write_text('{"format":"something else"}')
    page.one("#import-file").send_keys(str(wrong))
    page.wait(lambda: any("was not imported" in text for text in page.texts(".notice")), "a wrong file is refused")


def long_answer(page):
    page.click("New conversation")
    page.click("Settings")
    page.set("#set-max_tokens", "60000")
    page.set("#set-more", '{"ignore_eos": true}')
    page.click("Settings")
    page.ask("Tell me a very long story.")
    page.wait(lambda: len(page.texts(".message.assistant .body")[-1]) > 200, "some of the answer")


def worker_dies_in_an_answer(page):
    long_answer(page)
    worker = int("".join(filter(str.isdigit, (RUN / "worker.pid").read_text())))
    os.kill(worker, signal.SIGKILL)
    length = len(page.texts(".message.assistant .body")[-1])
    page.wait(lambda: len(page.texts(".message.assistant .body")[-1]) > length + 2000, "the answer goes on after its worker")
    assert not page.all(".message .error:not([hidden])")


def stop(page):
    assert page.is_running()
    page.press(Keys.ESCAPE)
    page.wait(lambda: not page.is_running(), "the answer stops")
    assert "stopped" in page.texts(".message.assistant .figures")[-1]
    page.wait(lambda: api("/slots") == [], "the server stops too")
    page.click("Continue")
    page.wait(lambda: page.is_running(), "it goes on")
    before = len(page.texts(".message.assistant .body")[-1])
    page.wait(lambda: len(page.texts(".message.assistant .body")[-1]) > before, "more of the answer")
    page.click("Stop")
    page.wait(lambda: not page.is_running(), "the answer stops")
    assert len(page.all(".message.assistant")) == 1


def wrong_parameter(page):
    page.click("Settings")
    page.set("#set-more", '{"top_p": "x"}')
    page.click("Settings")
    page.ask("Hello")
    page.answered()
    assert "top_p" in page.texts(".message .error")[-1], page.texts(".message .error")


def names_and_focus(page):
    """Each control has a name; Tab reaches all; the focus begins at the skip link."""
    page.click("Settings")
    for node in page.all("button, input, select, textarea, canvas"):
        if node.is_displayed():
            assert node.accessible_name, node.get_attribute("outerHTML")
    page.click("Settings")
    for node in page.all("[aria-labelledby], [aria-describedby], [aria-controls]"):
        for attribute in ("aria-labelledby", "aria-describedby", "aria-controls"):
            for name in (node.get_attribute(attribute) or "").split():
                assert page.js("return document.getElementById(arguments[0]) !== null", name), name
    page.js("document.body.tabIndex = -1; document.body.focus()")
    seen = []
    for _ in range(60):
        page.press(Keys.TAB)
        seen.append(page.js("return document.activeElement.id || document.activeElement.textContent"))
        if seen[-1] == "send":
            break
    assert seen[-1] == "send" and seen[0] == "Skip to the question", seen
    order = [seen.index(name) for name in ("model", "watch-toggle", "settings-toggle", "new-conversation", "search", "question")]
    assert order == sorted(order), seen
    assert page.text("#announcer"), "nothing was said to a screen reader"


def real(page):
    page.open(URL)
    for step in (settings_of_test, chat, edit_and_branch, map_of_demo, reload_keeps, injected_text_stays_text, search_delete_undo,
                 export_and_import, worker_dies_in_an_answer, stop, wrong_parameter, names_and_focus):
        print(step.__name__, flush=True)
        step(page)


# ---- With answers of our choice ----

def hostile_answer(page, _):
    page.ask("hostile")
    text = page.answered()
    assert "<script>window.pwned = 1</script>" in text and "<svg onload" in text, text
    assert page.js("return window.pwned") is None
    assert not page.all("#messages img, #messages script, #messages svg, #messages a[href^='javascript']")
    for link in page.all("#messages a"):
        assert link.get_attribute("href").startswith("https://x.example/"), link.get_attribute("href")
        assert "noopener" in link.get_attribute("rel")
    assert page.texts("#messages pre")[-1] == "<script>window.pwned = 1</script>"


def markdown_and_reasoning(page, _):
    page.click("New conversation")
    page.ask("markdown, please")
    page.answered()
    details = page.one(".message details")
    assert details.get_attribute("open") is None and page.text(".reasoning-text") == "The person wants a table."
    assert page.texts(".message table td") == ["device", "0.2 ms", "host", "1.1 ms"]
    assert page.texts(".message pre")[-1] == "int main(void)\n{\n\treturn 0;\n}"
    assert page.texts(".message ol li") == ["Load the expert, then compute it.", "Compute it where it is."]
    page.click("Copy the code")
    page.wait(lambda: page.texts(".copy") == ["Copied"], "the code is copied")
    page.js("document.querySelector('#question').focus()")
    page.press(Keys.CONTROL + "v")
    pasted = page.one("#question").get_attribute("value")
    assert pasted == "int main(void)\n{\n\treturn 0;\n}", pasted
    page.one("#question").clear()


def call_and_result(page, state):
    page.click("New conversation")
    page.ask("weather?")
    page.answered()
    assert page.text(".call .code-bar") == "Calls weather"
    assert json.loads(page.text(".call pre")) == {"city": "Oslo"}
    page.one(".calls textarea").send_keys("rain")
    page.click("Send results")
    page.wait(lambda: page.texts(".message.assistant .body")[-1] == "The tool says: rain", "the answer to the result")
    sent = state.requests[-1]["messages"]
    assert sent[-2]["tool_calls"][0]["function"] == {"name": "weather", "arguments": '{"city": "Oslo"}'}, sent
    assert sent[-1] == {"role": "tool", "tool_call_id": "call_1", "content": "rain"}


def stop_closes(page, state):
    page.click("New conversation")
    page.ask("endless")
    page.wait(lambda: "word20" in page.texts(".message.assistant .body")[-1], "some words")
    page.press(Keys.ESCAPE)
    page.wait(lambda: state.left == 1, "the server sees the connection close")
    assert page.texts(".message.assistant .body")[-1].startswith("word0 word1 ")


def keys(page, state):
    state.api_key = "secret"
    page.driver.get(page.driver.current_url)
    page.wait(lambda: page.one("#key-dialog").is_displayed(), "the question for the key")
    page.press("wrong", Keys.ENTER)
    page.wait(lambda: "refused" in page.text("#key-text"), "a wrong key is refused")
    page.press("secret", Keys.ENTER)
    page.wait(lambda: page.js("return document.querySelector('#model option') !== null"), "the models")
    assert page.js("return [sessionStorage.getItem('moed.key'), JSON.stringify(localStorage).includes('secret')]") == ["secret", False]
    page.ask("with a key")
    assert page.answered() == "You said: with a key"
    page.driver.get(page.driver.current_url)  # a reload does not ask again
    page.wait(lambda: page.js("return document.querySelector('#model option') !== null"), "the models, after a reload")
    assert not page.one("#key-dialog").is_displayed()


def pixel(page, row, expert):
    """The colour at a cell's lower left corner, beside its bar and within its frame."""
    return page.js("""const canvas = document.querySelector('#watch canvas');
        const w = (canvas.width - 27) / 64, h = (canvas.height - 17) / 16;
        return [...canvas.getContext('2d').getImageData(26 + arguments[1] * w + 1, 16 + arguments[0] * h + h - 3, 1, 1).data].slice(0, 3)""",
                   row, expert)


def placement_map(page, state):
    page.click("Experts")
    page.wait(lambda: page.text("#watch .muted").startswith("16 layers of 64 experts, 6 used by a token; policy moed"), "the map")
    page.wait(lambda: "step" in page.text("#watch .muted"), "changes")
    assert page.text(".figures-list").count("87 %") == 1 and "31.5" in page.text(".figures-list")
    assert "Conversations, device" not in [n.text for n in page.all(".figures-list dt")], "a figure that is not there"
    canvas = page.one("#watch canvas")
    canvas.send_keys(Keys.ARROW_DOWN)
    assert page.text("#map-cell").startswith("Layer 1, expert 0: "), page.text("#map-cell")
    canvas.send_keys(Keys.ARROW_DOWN, Keys.ARROW_RIGHT)
    assert page.text("#map-cell").startswith("Layer 2, expert 1: "), page.text("#map-cell")
    assert state.streams == 1
    page.click("worker", ".processes")
    assert "info worker ready" in page.text(".processes tr.log:not([hidden])")
    assert not page.all(".processes b"), "a log line became markup"


def policy_change(page, state):
    before = pixel(page, 5, 40)  # "file only" in the synthetic map
    page.js("const s = document.getElementById('policy'); s.value = 'all'")
    page.click("Use policy")
    page.wait(lambda: page.one("#key-dialog").is_displayed(), "the question for the admin key")
    page.press("secret", Keys.ENTER)  # an API key that is no admin key
    page.wait(lambda: "refused" in page.text("#key-text"), "a wrong key is refused")
    page.press("admin", Keys.ENTER)
    page.wait(lambda: "Done." in page.texts(".controls p"), "the policy is changed")
    assert state.posts[-1] == ("/moed/policy", {"model": "fake", "policy": "all"}, "admin"), state.posts
    page.wait(lambda: page.texts(".legend .value") == ["0", "0", "0", "0", "1024"], "the map shows it")
    page.wait(lambda: pixel(page, 5, 40) != before, "the cells are painted anew")
    slider = page.one("#device-bytes")
    page.js("arguments[0].value = 50; arguments[0].dispatchEvent(new Event('input'))", slider)
    page.click("Resize")
    page.wait(lambda: state.posts[-1][0] == "/moed/resize", "the memory is changed")
    assert state.posts[-1] == ("/moed/resize", {"model": "fake", "device_bytes": 3_000_000_000}, "admin"), state.posts


def nobody_looks(page, state):
    page.click("Experts")
    page.wait(lambda: state.streams == 0, "the stream closes with the panel")
    state.map = False
    page.click("Experts")
    page.wait(lambda: "no placement map" in page.text("#watch .muted"), "a server without a map")
    page.ask("still there")
    assert page.answered() == "You said: still there"


def phone(page, _):
    page.click("Experts")
    page.resize(360, 740)
    for panel in (None, "Settings"):
        if panel:
            page.click(panel)
        assert page.js("return document.documentElement.scrollWidth") <= 360, f"{panel}: wider than the phone"
    page.click("Settings")
    assert not page.one("#sidebar").is_displayed()
    page.click("Menu")
    page.wait(lambda: page.js("return document.getElementById('sidebar').getBoundingClientRect().left") == 0, "the list")
    page.click("New conversation")
    page.wait(lambda: not page.one("#sidebar").is_displayed(), "the list closes")
    page.resize(1280, 860)


def chosen(page, state):
    for step in (hostile_answer, markdown_and_reasoning, call_and_result, stop_closes, keys, placement_map, policy_change,
                 nobody_looks, phone):
        print(step.__name__, flush=True)
        step(page, state)


# ---- Screenshots ----

def screenshots(page, state):
    state.map, state.policy, state.api_key, state.cache_bytes = True, "moed", None, 6_000_000_000
    page.js("localStorage.setItem('moed.theme', '\"light\"'); indexedDB.deleteDatabase('moed')")
    page.driver.get(page.driver.current_url)
    page.ask("Show me markdown: what does an expert on the host cost?")
    page.answered()
    page.click("Experts")
    page.wait(lambda: "step 4" in (page.text("#watch .muted") or ""), "the map")
    page.js("document.querySelector('#scroll').scrollTop = 0")
    shot(page, "page-light")
    page.js("localStorage.setItem('moed.theme', '\"dark\"')")
    page.driver.get(page.driver.current_url)
    page.click("Experts")
    page.wait(lambda: "step 4" in (page.text("#watch .muted") or ""), "the map")
    shot(page, "page-dark")
    page.click("Experts")
    page.resize(390, 760)
    shot(page, "page-phone")


first = Page(str(WORK / "first"))
try:
    real(first)
    # what the checks asked for: a parameter that the server refuses
    found = [text for text in first.complaints() if "400" not in text]
    assert not found, found
finally:
    first.close()

second = Page(str(WORK / "second"))
try:
    port, server = fake_server.start(PAGE, policy_of_page())
    second.open(f"http://127.0.0.1:{port}/")
    chosen(second, server)
    found = [text for text in second.complaints()
             if not any(known in text for known in ("401", "404", "willReadFrequently"))]  # the last: the test's own
    assert not found, found
    if SHOTS:
        screenshots(second, server)
finally:
    second.close()

third = Page(str(WORK / "third"))
try:
    port, server = fake_server.start(PAGE, policy_of_page())
    third.open(f"http://127.0.0.1:{port}/")
    for step in page_cases.STEPS:
        print(step.__name__, flush=True)
        step(third, server)
    found = [text for text in third.complaints() if not any(status in text for status in page_cases.STATUSES)]
    assert not found, found
finally:
    third.close()
