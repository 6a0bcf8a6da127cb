"""Debian's Chromium without a window, and the console served by the real query API over a real store."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright

from millstream.console import static_dir
from support.browsing import load
from support.fleet_api import FleetApi, fill

# A page that comes up in a second may take half a minute where others compute.
PATIENCE_MS = 90_000
expect.set_options(timeout=PATIENCE_MS)

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(pytest.mark.xdist_group("browser"))


# Not for the whole session: Playwright keeps an event loop in the thread, and tests that run their own would fail.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no Chromium on PATH; on Debian: apt-get install chromium")
    if static_dir() is None:
        pytest.skip("the console is not built, because the npm packages could not be had; see `make console`")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield running
        running.close()


@pytest.fixture(scope="module")
def shared_api(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetApi]:
    """A fleet with telemetry, for tests that only look."""
    directory = tmp_path_factory.mktemp("fleet")
    fill(directory)
    api = FleetApi(directory).start()
    yield api
    api.stop()


@pytest.fixture
def own_api(browser: Browser, tmp_path: Path) -> Iterator[FleetApi]:
    """An API for one test, not started and without data."""
    api = FleetApi(tmp_path)
    yield api
    api.stop()


class Watch:
    """What a page did that it must not: errors, and requests to elsewhere."""

    def __init__(self, page: Page) -> None:
        self.errors: list[str] = []
        self.hosts: set[str] = set()
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._said)
        page.on("request", self._requested)

    def _said(self, message: ConsoleMessage) -> None:
        # A request that finds no server is logged by the browser itself.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.errors.append(message.text)

    def _requested(self, request: Request) -> None:
        address = urlsplit(request.url)
        if address.scheme != "data":
            self.hosts.add(address.hostname or "")


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens pages, and fails the test when one of them has an error or asks another server for something."""
    contexts, watches = [], []

    def open_(url: str, **options: Any) -> Page:
        context = browser.new_context(viewport={"width": 1440, "height": 1000}, **options)
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        page = context.new_page()
        watches.append(Watch(page))
        load(lambda: page.goto(url))
        return page

    yield open_
    for context in contexts:
        context.close()
    assert [watch.errors for watch in watches if watch.errors] == []
    assert set().union(*(watch.hosts for watch in watches)) <= {"127.0.0.1"}
