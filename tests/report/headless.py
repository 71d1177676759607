"""A headless Chromium of the distribution's package, with what it logs and what it asks the network for."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM, DRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
REQUIRED = "LMP_BROWSER_REQUIRED"
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    "--hide-scrollbars", "--force-device-scale-factor=1",
)  # fmt: skip


def missing() -> str | None:
    """What there is no browser for, in words; None where there is one."""
    gone = [str(path) for path in (CHROMIUM, DRIVER) if not path.exists()]
    return f"no {' and no '.join(gone)}: install chromium and chromium-driver" if gone else None


@contextmanager
def browser() -> Iterator[Browser]:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    profile = tempfile.mkdtemp(prefix="lmp-chromium-")
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = Service(str(DRIVER), env={**os.environ, "SE_OFFLINE": "true"})
    driver = webdriver.Chrome(options=options, service=service)
    try:
        yield Browser(driver)
    finally:
        driver.quit()
        shutil.rmtree(profile, ignore_errors=True)


class Browser:
    """One window. ``opened`` is the page in it."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.logged: list[str] = []
        self.asked: list[str] = []

    def open(self, page: Path, fragment: str = "", width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Opens the page as a file; what was logged before is forgotten."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[scheme])
        self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        self.driver.get("about:blank")
        self.listen()
        self.logged, self.asked = [], []
        self.driver.get(page.as_uri() + fragment)
        self.rest()

    def command(self, name: str, **arguments: Any) -> Any:
        return self.driver.execute_cdp_cmd(name, arguments)

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def rest(self) -> None:
        """Until the charts are drawn, where there are any."""
        from selenium.webdriver.support.ui import WebDriverWait

        # A change is taken up in the next frame: the charts are waiting by the end of it.
        self.driver.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
        WebDriverWait(self.driver, 60, 0.05).until(
            lambda _: self.run("return document.documentElement.dataset.charts") != "waiting"
        )

    def listen(self) -> None:
        """Takes up what was logged and asked for since the last time."""
        self.logged += [entry["message"] for entry in self.driver.get_log("browser")]
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                self.asked.append(message["params"]["request"]["url"])

    def displayed(self, selector: str) -> bool:
        return bool(self.run(_DISPLAYED, selector))

    def texts(self, selector: str) -> list[str]:
        return [str(text) for text in self.run(_TEXTS, selector)]

    def click(self, selector: str) -> None:
        self.run("document.querySelector(arguments[0]).click()", selector)

    def point_and_click(self, selector: str) -> None:
        """Clicks with the mouse at the middle of what is shown: something that covers it takes the click."""
        x, y = self.run(_MIDDLE, selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.command("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        self.rest()

    def type(self, selector: str, text: str) -> None:
        """Puts the text into an input, as typing does, and waits for what follows."""
        self.run(_TYPE, selector, text)
        self.rest()

    def press(self, *keys: str) -> None:
        """Presses keys where the focus is, one after the other, and waits for what follows each.

        No element is held between two steps: the page may draw it anew at any time.
        """
        from selenium.webdriver import ActionChains

        for key in keys:
            ActionChains(self.driver).send_keys(key).perform()
            self.rest()

    def choose(self, selector: str, value: str) -> None:
        self.run(_CHOOSE, selector, value)
        self.rest()

    def picture(self, file: Path, whole: bool = True) -> None:
        import base64

        found = self.command("Page.captureScreenshot", format="png", captureBeyondViewport=whole, **self._clip(whole))
        file.write_bytes(base64.b64decode(found["data"]))

    def _clip(self, whole: bool) -> dict[str, Any]:
        if not whole:
            return {}
        size = self.run("const e = document.documentElement; return [e.clientWidth, e.scrollHeight]")
        return {"clip": {"x": 0, "y": 0, "width": size[0], "height": min(size[1], 8000), "scale": 1}}


_TEXTS = "return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)"
_DISPLAYED = """
return document.querySelector(arguments[0]).checkVisibility({opacityProperty: true, visibilityProperty: true});
"""
_MIDDLE = """
const element = document.querySelector(arguments[0]);
element.scrollIntoView({block: "center"});
const box = element.getBoundingClientRect();
return [box.left + box.width / 2, box.top + box.height / 2];
"""
_TYPE = """
const input = document.querySelector(arguments[0]);
input.value = arguments[1];
input.dispatchEvent(new Event("input", {bubbles: true}));
"""
_CHOOSE = """
const select = document.querySelector(arguments[0]);
select.value = arguments[1];
select.dispatchEvent(new Event("change", {bubbles: true}));
"""
