"""What the page must keep and show, before a server with answers of our choice: tabs side by side, a store that fails."""
import re

from fake_server import FAKE_MODEL
from page_driver import Keys

STATUSES = ("400", "401", "404")  # that the server answers here; the browser's log has them


def begin(page, question):
    """A new conversation with an answered question."""
    page.click("New conversation")
    page.ask(question)
    page.answered()


def open_tab(page):
    """A further tab with the page, which is then the one in front. Returns (the one before, the new one)."""
    before = page.driver.current_window_handle
    url = page.driver.current_url
    page.driver.switch_to.new_window("tab")
    page.open(url)
    return before, page.driver.current_window_handle


def to_tab(page, tab):
    page.driver.switch_to.window(tab)


def close_tab(page, tab, other):
    to_tab(page, tab)
    page.driver.close()
    to_tab(page, other)


def questions(page):
    return page.texts(".message.user .body")


# ---- Tabs ----

def tabs_share_a_conversation(page, _):
    """What was asked in one tab and then in another is in both, and stays."""
    begin(page, "before the tabs")
    a, b = open_tab(page)
    page.wait(lambda: questions(page) == ["before the tabs"], "the second tab shows it")
    to_tab(page, a)
    page.ask("asked in tab A")
    page.answered()
    to_tab(page, b)
    page.wait(lambda: questions(page) == ["before the tabs", "asked in tab A"], "the question of the other tab")
    page.ask("asked in tab B")
    page.answered()
    for tab in (a, b):
        to_tab(page, tab)
        page.driver.refresh()
        page.wait(lambda: questions(page) == ["before the tabs", "asked in tab A", "asked in tab B"], "all questions")
    close_tab(page, b, a)


def tabs_without_messages_merge(page, _):
    """A tab that was not told of the other's question makes a branch of its own."""
    begin(page, "the trunk")
    a, b = open_tab(page)
    page.js("BroadcastChannel.prototype.postMessage = () => {}")
    page.ask("deaf in tab B")
    page.answered()
    to_tab(page, a)
    page.ask("deaf in tab A")
    page.answered()
    page.wait(lambda: page.texts(".branch span") == ["1 of 2"] or page.texts(".branch span") == ["2 of 2"], "both branches")
    page.driver.refresh()
    page.wait(lambda: questions(page) == ["the trunk", "deaf in tab A"], "the branch of this tab")
    page.js("document.querySelector('.branch button:enabled').click()")
    assert questions(page) == ["the trunk", "deaf in tab B"], questions(page)
    close_tab(page, b, a)


def a_deleted_one_stays_deleted(page, _):
    begin(page, "one that stays")
    begin(page, "to be deleted")
    a, b = open_tab(page)
    for deaf in (False, True):
        to_tab(page, b)
        page.wait(lambda: "to be deleted" in page.texts("#conversations .title"), "it is in the list")
        if deaf:
            page.js("BroadcastChannel.prototype.postMessage = () => {}")
        page.js("document.querySelector('#conversations li.current .quiet').click()")
        to_tab(page, a)
        if deaf:
            page.one("#question").send_keys("asked in a deleted one", Keys.ENTER)
        page.wait(lambda: "This conversation was deleted in another tab." in page.texts(".notice span"), "a notice")
        assert not page.all(".message"), "what is typed here would be asked in another conversation"
        assert "to be deleted" not in page.texts("#conversations .title")
        if not deaf:
            page.click("Undo", "#notices")
            page.wait(lambda: questions(page) == ["to be deleted"], "it is back")
            to_tab(page, b)
            page.wait(lambda: "to be deleted" in page.texts("#conversations .title"), "it is back in the other tab")
            page.js("[...document.querySelectorAll('#conversations .open')].find((b) => b.textContent.startsWith('to be')).click()")
    page.wait(lambda: not page.is_running(), "the answer ends")
    page.driver.refresh()
    page.wait(lambda: page.js("return document.querySelector('#model option') !== null"), "the page again")
    assert "to be deleted" not in page.texts("#conversations .title"), page.texts("#conversations .title")
    close_tab(page, b, a)


def an_answer_of_another_tab(page, state):
    """A tab sees that an answer arrives in another one, sees it grow, and can stop it."""
    page.click("New conversation")
    page.ask("endless")
    page.wait(lambda: "word20" in page.texts(".message.assistant .body")[-1], "some words")
    a, b = open_tab(page)
    page.wait(lambda: page.is_running(), "the second tab shows that it arrives")
    assert "Continue" not in page.texts(".message .foot button")
    length = len(page.texts(".message.assistant .body")[-1])
    page.wait(lambda: len(page.texts(".message.assistant .body")[-1]) > length, "it grows here too")
    left = state.left
    page.press(Keys.ESCAPE)
    page.wait(lambda: state.left > left, "the server sees the connection close")
    page.wait(lambda: not page.is_running(), "the second tab shows its end")
    assert "Continue" in page.texts(".message .foot button")
    to_tab(page, a)
    page.wait(lambda: not page.is_running(), "the first one too")
    close_tab(page, b, a)


# ---- A store that fails ----

def the_store_is_cleared(page, _):
    """Someone clears the site's data while the page is open: the next question opens the store again."""
    begin(page, "before it is cleared")
    origin = page.js("return location.origin")
    page.driver.execute_cdp_cmd("Storage.clearDataForOrigin", {"origin": origin, "storageTypes": "indexeddb"})
    page.ask("after it was cleared")
    assert page.answered() == "You said: after it was cleared"
    page.wait(lambda: page.js("return indexedDB.databases().then((all) => all.length)") == 1, "a store again")
    page.driver.refresh()
    page.wait(lambda: questions(page) == ["before it is cleared", "after it was cleared"], "the conversation is kept")


def the_store_is_full(page, _):
    begin(page, "before it is full")
    page.js("""window.put = IDBObjectStore.prototype.put;
               IDBObjectStore.prototype.put = () => { throw new DOMException('no space is left', 'QuotaExceededError'); }""")
    page.ask("one that is not kept")
    assert page.answered() == "You said: one that is not kept"
    page.wait(lambda: page.texts(".notice span") == ["This conversation is not being saved: no space is left"], "one notice")
    page.ask("another one")
    assert page.answered() == "You said: another one"
    assert page.texts(".notice span") == ["This conversation is not being saved: no space is left"], page.texts(".notice span")
    page.js("IDBObjectStore.prototype.put = window.put")
    page.ask("space again")
    page.answered()
    page.driver.refresh()
    page.wait(lambda: questions(page)[-1:] == ["space again"], "it is kept again")
    assert len(questions(page)) == 4


# ---- Models ----

def models(page):
    return page.texts("#model option")


def the_server_has_another_model(page, state):
    begin(page, "to the first model")
    state.models = [{**FAKE_MODEL, "id": "second"}]
    page.ask("to the model that is gone")
    page.answered()
    assert page.texts(".message .error")[-1].startswith("No answer: there is no model 'fake'."), page.texts(".message .error")
    page.wait(lambda: models(page) == ["second"], "the list is read again")
    page.click("Regenerate", ".message:last-child")
    assert page.answered() == "You said: to the model that is gone"
    assert state.requests[-1]["model"] == "second"
    state.models = [FAKE_MODEL]
    page.js("document.dispatchEvent(new Event('visibilitychange'))")
    page.wait(lambda: models(page) == ["fake"], "the list is read when the tab comes to the front")
    state.models = [{**FAKE_MODEL, "id": "third"}]
    page.js("document.getElementById('model').dispatchEvent(new Event('focus'))")
    page.wait(lambda: models(page) == ["third"], "and when the list gets the focus")
    state.models = [FAKE_MODEL]
    page.driver.refresh()


def a_model_that_is_not_loaded(page, state):
    unloaded = {"id": "later", "status": {"value": "unloaded"}, "meta": {"architecture": "fake", "n_ctx_train": 8192}}
    state.models = [unloaded]
    page.driver.refresh()
    page.wait(lambda: models(page) == ["later (unloaded)"], "the model and its status")
    page.click("New conversation")
    facts = page.text("#welcome")
    assert "Trained on8,192 tokens" in facts and "NaN" not in facts, facts
    page.ask("be loaded")
    page.answered()
    page.wait(lambda: page.text("#context") == "Context: 1,503 of 4,096 tokens", "the context of the loaded model")
    assert models(page) == ["later"]
    state.models = [FAKE_MODEL]
    page.driver.refresh()
    page.wait(lambda: models(page) == ["fake"], "the first model again")


# ---- Answers that fail ----

def a_question_that_failed(page, state):
    """It is not part of later prompts, and the page says so."""
    begin(page, "the one before")
    state.failure = (400, "the prompt is too long")
    page.ask("far too long")
    page.answered()
    state.failure = None
    said = "No answer: the prompt is too long. Later questions are sent without this one."
    assert page.texts(".message .error")[-1] == said, page.texts(".message .error")
    page.ask("a short one")
    page.answered()
    sent = [m["content"] for m in state.requests[-1]["messages"]]
    assert sent == ["the one before", "You said: the one before", "a short one"], sent


def a_page_closed_before_the_answer(page, state):
    state.gate.clear()
    page.click("New conversation")
    page.ask("wait for what does not come")
    page.wait(lambda: "wait for what" in state.requests[-1]["messages"][-1]["content"], "the request")
    page.driver.refresh()
    page.wait(lambda: page.texts(".message .error:not([hidden])") ==
              ["No answer: the page was closed. Later questions are sent without this one."], "what became of the answer")
    state.gate.set()


def a_page_closed_within_the_answer(page, _):
    """All that was shown is kept."""
    page.click("New conversation")
    page.ask("endless")
    page.wait(lambda: "word20 " in page.texts(".message.assistant .body")[-1], "some words")
    shown = page.js("""const text = document.querySelector('.message.assistant .body').textContent;
                       location.reload();
                       return text;""")
    page.wait(lambda: page.texts(".message .error:not([hidden])") == ["The answer broke off: the page was closed."],
              "what became of the answer")
    kept = page.texts(".message.assistant .body")[-1]
    assert kept.startswith(shown.rstrip()), (len(kept), len(shown))
    page.wait(lambda: page.js("return Object.keys(localStorage).filter((k) => k.includes('partial')).length") == 0, "it is in the store")
    page.driver.refresh()
    page.wait(lambda: page.texts(".message.assistant .body")[-1:] == [kept], "and stays there")


def the_tab_of_an_answer_closes(page, _):
    """Another tab that shows the answer has all that was shown, not only what the store has."""
    page.click("New conversation")
    page.ask("endless")
    page.wait(lambda: "word20 " in page.texts(".message.assistant .body")[-1], "some words")
    a, b = open_tab(page)
    page.wait(lambda: page.is_running(), "the second tab shows that it arrives")
    to_tab(page, a)
    page.js("IDBObjectStore.prototype.put = () => { throw new DOMException('no space is left', 'QuotaExceededError'); }")
    page.wait(lambda: page.texts(".notice span") == ["This conversation is not being saved: no space is left"], "nothing is stored")
    length = len(page.texts(".message.assistant .body")[-1])
    page.wait(lambda: len(page.texts(".message.assistant .body")[-1]) > length, "more words")
    shown = page.js("""const text = document.querySelector('.message.assistant .body').textContent;
                       location = 'about:blank';
                       return text;""")
    to_tab(page, b)
    page.wait(lambda: page.texts(".message.assistant .body")[-1].startswith(shown.rstrip()), "all that was shown")
    page.wait(lambda: not page.is_running(), "the end")
    close_tab(page, a, b)


def the_wait_for_a_prompt(page, state):
    state.gate.clear()
    page.click("New conversation")
    page.ask("wait for the prompt")
    progress = re.compile(r"prompt: 2,000 of 4,000 tokens after \d+ s, about 10 s left")
    page.wait(lambda: progress.fullmatch(page.texts(".message.assistant .figures")[-1]), "how far the prompt is")
    state.gate.set()
    page.answered()
    assert "left" not in page.texts(".message.assistant .figures")[-1]


# ---- API keys ----

def keys_as_they_are_pasted(page, state):
    state.api_key = "secret"
    page.driver.refresh()
    page.wait(lambda: page.one("#key-dialog").is_displayed(), "the question for the key")
    page.press("\u201csecret\u201d", Keys.ENTER)
    page.wait(lambda: "plain characters" in page.text("#key-text"), "typographic quotes are refused")
    assert page.one("#key-dialog").is_displayed()
    page.press(Keys.ESCAPE)
    page.wait(lambda: not page.one("#key-dialog").is_displayed(), "the dialog closes")
    page.one("#question").send_keys("without a key", Keys.ENTER)
    page.wait(lambda: "Give a key" in page.texts(".notice button"), "a way to give one where it is missed")
    page.one("#question").clear()
    page.click("New conversation")
    assert "Give a key" in page.texts("#welcome button")
    page.click("Give a key", "#welcome")
    page.wait(lambda: page.one("#key-dialog").is_displayed(), "the question again")
    page.press("wrong", Keys.ENTER)
    page.wait(lambda: "refused" in page.text("#key-text"), "a wrong key is refused")
    assert page.js("return sessionStorage.getItem('moed.key')") is None
    page.press("secret", Keys.ENTER)
    page.wait(lambda: models(page) == ["fake"], "the models")
    assert page.js("return sessionStorage.getItem('moed.key')") == "secret"
    state.api_key = None


# ---- Keys ----

PRESS = """const [selector, fields] = arguments;
           document.querySelector(selector).dispatchEvent(new KeyboardEvent('keydown', {bubbles: true, cancelable: true, ...fields}))"""


def an_input_method_has_its_keys(page, state):
    """Enter and Esc that end a composition neither send, nor close, nor stop."""
    begin(page, "a first one")
    sent = len(state.requests)
    page.one("#question").send_keys("half a sentence")
    page.js(PRESS, "#question", {"key": "Enter", "keyCode": 229})
    page.click("Edit", ".message:first-child")
    for key in ("Enter", "Escape"):
        page.js(PRESS, ".edit textarea", {"key": key, "keyCode": 229})
        page.js(PRESS, ".edit textarea", {"key": key, "isComposing": True})
    assert len(page.all(".edit")) == 1 and len(state.requests) == sent
    page.press(Keys.ESCAPE)
    page.one("#question").clear()
    page.ask("endless")
    page.js(PRESS, "#question", {"key": "Escape", "keyCode": 229})
    page.js(PRESS, "#question", {"key": "\u00df", "code": "KeyS", "altKey": True})
    length = len(page.texts(".message.assistant .body")[-1])
    page.wait(lambda: len(page.texts(".message.assistant .body")[-1]) > length, "the answer goes on")
    assert page.is_running() and not page.one("#settings").is_displayed()
    page.press(Keys.ESCAPE)
    page.wait(lambda: not page.is_running(), "Esc stops it")


def a_setting_typed_before_a_new_conversation(page, _):
    begin(page, "the conversation before")
    page.press(Keys.ALT + "s")
    page.one("#set-system-prompt").send_keys("Be brief.")
    page.press(Keys.ALT + "n")
    page.wait(lambda: not page.all(".message"), "a new conversation")
    assert page.one("#set-system-prompt").get_attribute("value") == "Be brief."
    page.set("#set-system-prompt", "")
    page.press(Keys.ALT + "s")
    page.wait(lambda: not page.one("#settings").is_displayed(), "the settings close")


def a_setting_of_another_tab(page, _):
    begin(page, "with settings")
    a, b = open_tab(page)
    for tab in (a, b):
        to_tab(page, tab)
        page.click("Settings")
    page.set("#set-temperature", "0.5")
    to_tab(page, a)
    shown = "return document.getElementById('set-temperature').value"
    page.wait(lambda: page.js(shown) == "0.5", "the value of the other tab")
    page.set("#set-temperature", "")
    page.click("Settings")
    close_tab(page, b, a)


def touch_keyboards(page, state):
    assert page.one("#question").get_attribute("enterkeyhint") == "send"
    page.driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": True})
    page.resize(390, 760)
    page.driver.refresh()
    page.wait(lambda: models(page) == ["fake"], "the page")
    assert page.one("#question").get_attribute("enterkeyhint") == "enter"
    sent = len(state.requests)
    page.one("#question").send_keys("one", Keys.ENTER, "two")
    assert page.one("#question").get_attribute("value") == "one\ntwo" and len(state.requests) == sent
    page.click("Send")
    page.wait(lambda: len(state.requests) > sent, "the button sends")
    page.driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": False})
    page.resize(1280, 860)
    page.driver.refresh()
    page.wait(lambda: models(page) == ["fake"], "the page")


def files_are_refused(page, _):
    for kind in ("paste", "drop"):
        page.js("""const data = new DataTransfer();
                   data.items.add(new File(['x'], 'x.png', {type: 'image/png'}));
                   const event = arguments[0] === 'paste' ? new ClipboardEvent('paste', {clipboardData: data, bubbles: true, cancelable: true})
                                                          : new DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true});
                   document.getElementById('question').dispatchEvent(event);
                   window.taken = event.defaultPrevented;""", kind)
        assert page.js("return window.taken"), kind
        assert sum("Files cannot be sent" in text for text in page.texts(".notice span")) == 1, kind
        page.click("Close", "#notices")


# ---- What is open stays ----

def what_is_open_stays(page, state):
    """The end of an answer leaves an edited question, an opened reasoning, a selection and the focus."""
    state.gate.clear()
    begin(page, "markdown, please")
    page.ask("wait for the gate")
    page.click("Edit", ".message:first-child")
    page.one(".edit textarea").send_keys(" Edited")
    page.js("""const answer = document.querySelector('.message:nth-child(2)');
               answer.querySelector('details').open = true;
               answer.querySelector('.foot button:last-of-type').focus();
               getSelection().selectAllChildren(answer.querySelector('.body p'));""")
    selected = page.js("return getSelection().toString()")
    assert selected == "Two ways, with their costs:", selected
    state.gate.set()
    assert page.answered() == "You said: wait for the gate"
    edited = page.one(".edit textarea").get_attribute("value")
    assert edited == "markdown, please Edited", edited
    assert page.js("return document.querySelector('.message details').open")
    assert page.js("return getSelection().toString()") == selected
    assert page.js("return document.activeElement.textContent") == "Regenerate"
    page.click("Send as a new version")
    page.wait(lambda: questions(page) == ["markdown, please Edited"], "the new version")
    page.answered()
    page.click("Earlier version")
    assert questions(page) == ["markdown, please", "wait for the gate"] and not page.all(".edit")


def a_typed_result_stays(page, _):
    begin(page, "weather?")
    page.one(".calls textarea").send_keys("snow")
    page.js("document.getElementById('model').dispatchEvent(new Event('change'))")
    assert page.one(".calls textarea").get_attribute("value") == "snow"
    page.click("Send results")
    page.wait(lambda: page.texts(".message.assistant .body")[-1] == "The tool says: snow", "the answer to the result")
    assert not page.all(".calls textarea")


def a_long_conversation(page, _):
    """A send and an answer's end touch the new messages only, and the view stays at the end."""
    page.click("New conversation")
    page.js("""return (async () => {
        const messages = {}, chosen = {};
        for (let i = 0, before = ''; i < 300; i++) {
            messages[`m${i}`] = { id: `m${i}`, parent: before, role: i % 2 ? 'assistant' : 'user', finish: 'stop',
                                  content: 'A line.\\n\\n- an item\\n'.repeat(1 + i % 7) };
            before = chosen[before] = `m${i}`;
        }
        const conversation = { id: 'long', title: 'long', created: 1, updated: Date.now(), settings: {}, messages, chosen };
        const open = indexedDB.open('moed', 1);
        const database = await new Promise((resolve) => { open.onsuccess = () => resolve(open.result); });
        const write = database.transaction('conversations', 'readwrite');
        write.objectStore('conversations').put(conversation);
        await new Promise((resolve) => { write.oncomplete = resolve; });
        database.close();
        localStorage.setItem('moed.current', '"long"');
    })()""")
    page.driver.refresh()
    page.wait(lambda: len(page.all(".message")) == 300, "the long conversation")
    at_end = "const s = document.getElementById('scroll'); return s.scrollHeight - s.scrollTop - s.clientHeight < 80"
    page.wait(lambda: page.js(at_end), "the view is at the end")
    page.js("""window.changes = 0;
               new MutationObserver((all) => { window.changes += all.filter((m) => !m.target.closest?.('.message')).length; })
                   .observe(document.getElementById('messages'), { childList: true, subtree: true });
               document.querySelectorAll('.message').forEach((m) => { m.old = true; });""")
    page.ask("one more")
    page.answered()
    assert page.js("return document.querySelectorAll('.message').length") == 302
    assert page.js("return [...document.querySelectorAll('.message')].filter((m) => m.old).length") == 300
    assert page.js("return window.changes") == 2, page.js("return window.changes")
    page.wait(lambda: page.js(at_end), "the view is still at the end")


STEPS = (
    tabs_share_a_conversation, tabs_without_messages_merge, a_deleted_one_stays_deleted, an_answer_of_another_tab,
    the_store_is_cleared, the_store_is_full,
    the_server_has_another_model, a_model_that_is_not_loaded,
    keys_as_they_are_pasted, a_question_that_failed, a_page_closed_before_the_answer,
    a_page_closed_within_the_answer, the_tab_of_an_answer_closes, the_wait_for_a_prompt,
    an_input_method_has_its_keys, a_setting_typed_before_a_new_conversation,
    a_setting_of_another_tab,
    touch_keyboards, files_are_refused,
    what_is_open_stays, a_typed_result_stays, a_long_conversation,
)
