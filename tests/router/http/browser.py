"""A browser without a screen for tests: Debian's chromium with its driver.

A test reads a page again and again until it shows the expected texts, as the page updates once a second.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest
import trio

from tests.hangs import HANGS_S

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
)  # fmt: skip
PATIENCE_S = HANGS_S
LOOK_S = 0.1

Result = TypeVar("Result")


@contextmanager
def browser() -> Iterator[Any]:
    """A driver of selenium, with a new profile. Skips the test if no browser is installed."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    chromium, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or chromedriver is None:
        pytest.skip("chromium and chromium-driver are not installed (make interop-tools)")
    service = pytest.importorskip("selenium.webdriver.chrome.service")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = chromium
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = webdriver.Chrome(options=options, service=service.Service(chromedriver))
        try:
            yield driver
        finally:
            driver.quit()


class Seen:
    """One page, which a thread queries."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver

    async def _do(self, what: Callable[[], Result]) -> Result:
        return await trio.to_thread.run_sync(what)

    async def open(self, url: str, width: int = 1280, height: int = 1000) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        await self._do(lambda: self._driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics))
        await self._do(lambda: self._driver.get(url))

    async def run(self, script: str, *arguments: Any) -> Any:
        return await self._do(lambda: self._driver.execute_script(script, *arguments))

    async def texts(self, selector: str) -> list[str]:
        """The shown texts of all matching elements."""
        found = await self.run(
            "return [...document.querySelectorAll(arguments[0])].map((one) => one.innerText ?? one.textContent)",
            selector,
        )
        return [" ".join(text.split()) for text in found]

    async def until(self, selector: str, expected: Callable[[list[str]], bool]) -> list[str]:
        """The texts, once they are as expected."""
        texts: list[str] = []
        with trio.move_on_after(PATIENCE_S):
            while True:
                texts = await self.texts(selector)
                if expected(texts):
                    return texts
                await trio.sleep(LOOK_S)
        raise AssertionError(f"{selector} says {texts}")

    async def type(self, selector: str, keys: str) -> None:
        await self._do(lambda: self._driver.find_element("css selector", selector).send_keys(keys))

    async def press(self, key: str) -> None:
        """Press a key where the focus is."""
        await self._do(lambda: self._driver.switch_to.active_element.send_keys(key))

    async def complaints(self) -> list[str]:
        """The browser's log: errors of scripts, what a policy forbids, what could not be loaded."""
        return [entry["message"] for entry in await self._do(lambda: self._driver.get_log("browser"))]
