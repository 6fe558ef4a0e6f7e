"""Chromium with the page in it: starting it, waiting, and reading what the page shows."""
import os
import time

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

WAIT_S = 60  # on a machine with other work


class Page:
    def __init__(self, folder, width=1280, height=860):
        self.downloads = os.path.join(folder, "downloads")
        options = Options()
        # the test may run as root, which Chromium's own sandbox refuses
        for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                         "--force-device-scale-factor=1", f"--user-data-dir={folder}/browser", f"--window-size={width},{height}"):
            options.add_argument(argument)
        options.add_experimental_option("prefs", {"download.default_directory": self.downloads})
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
        self.driver.set_script_timeout(2 * WAIT_S)

    def close(self):
        self.driver.quit()

    def open(self, url):
        self.driver.get(url)
        self.wait(lambda: self.js("return document.querySelector('#model option') !== null"), "a model in the list")

    def js(self, code, *arguments):
        return self.driver.execute_script(code, *arguments)

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector):
        found = self.all(selector)
        assert len(found) == 1, f"{len(found)} of {selector}"
        return found[0]

    def text(self, selector):
        return self.js("return document.querySelector(arguments[0])?.textContent ?? null", selector)

    def texts(self, selector):
        return self.js("return [...document.querySelectorAll(arguments[0])].map((n) => n.textContent)", selector)

    def wait(self, what, name):
        end = time.monotonic() + WAIT_S
        while True:
            value = what()
            if value:
                return value
            if time.monotonic() > end:
                self.driver.save_screenshot("/tmp/page-failure.png") if os.environ.get("PAGE_DEBUG") else None
                raise AssertionError(f"the page does not come to: {name}")
            time.sleep(0.05)

    def click(self, text, within="body"):
        """Clicks the last button that is shown with this text or name."""
        found = self.js("""return [...document.querySelectorAll(arguments[0] + ' button')].filter((b) =>
            (b.textContent === arguments[1] || b.getAttribute('aria-label') === arguments[1]) && b.checkVisibility()).at(-1)""",
                        within, text)
        assert found, f"no button '{text}' in {within}"
        self.js("arguments[0].scrollIntoView({block: 'center'})", found)
        found.click()

    def press(self, *keys):
        """Keys to what has the focus."""
        self.driver.switch_to.active_element.send_keys(*keys)

    def is_running(self):
        return self.js("return !document.getElementById('stop').hidden")

    def ask(self, question):
        field = self.one("#question")
        field.send_keys(question, Keys.ENTER)
        self.wait(lambda: question in (self.texts(".message.user .body") or [""])[-1], "the question is shown")

    def answered(self):
        self.wait(lambda: not self.is_running(), "the answer ends")
        return self.texts(".message.assistant .body")[-1]

    def set(self, selector, value):
        """Types a value into a field of the settings, and leaves it."""
        field = self.one(selector)
        field.clear()
        field.send_keys(value)
        self.js("arguments[0].dispatchEvent(new Event('change'))", field)

    def complaints(self):
        """What the browser complained about: violations of the policy, errors of scripts."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]

    def resize(self, width, height):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                    {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600})
