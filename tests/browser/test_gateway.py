"""The gateway from a browser: its own EventSource, and the page that tries the calls out."""

from collections.abc import Callable, Iterator

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from millstream.testing import EmbeddedBroker

TAKE = """([topic, count]) => new Promise((resolve, reject) => {
  const found = [];
  const source = new EventSource(`/consume?topic=${topic}&group=browser`);
  source.onerror = () => reject(new Error("the stream failed"));
  source.onmessage = async (event) => {
    const message = JSON.parse(event.data);
    const body = JSON.stringify({ id: event.lastEventId });
    const answer = await fetch("/ack?group=browser", { method: "POST", body });
    found.push([message.payload, event.lastEventId === message.id, await answer.text()]);
    if (found.length === count) { source.close(); resolve(found); }
  };
})"""


@pytest.fixture(scope="module")
def node(browser: Browser) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"telemetry": 2}) as broker:
        yield broker


def test_an_event_source_takes_and_acknowledges_messages(
    node: EmbeddedBroker, open_page: Callable[..., Page]
) -> None:
    for number in range(4):
        httpx.post(f"{node.http_url}/produce?topic=telemetry", json={"payload": f"m{number}"}, timeout=60)
    page = open_page(f"{node.http_url}/docs")
    found = page.evaluate(TAKE, ["telemetry", 4])
    assert sorted(found) == [[f"m{number}", True, "ok"] for number in range(4)]


def test_a_message_is_sent_from_the_page(node: EmbeddedBroker, open_page: Callable[..., Page]) -> None:
    page = open_page(f"{node.http_url}/docs")
    page.locator("#produce > summary").click()
    page.locator("#produce-topic").fill("telemetry")
    page.locator("#produce-body").fill('{"payload": "by hand"}')
    page.locator("#produce button[type=submit]").click()
    expect(page.locator("#produce h3")).to_contain_text("200 OK")
    expect(page.locator("#produce [role=status] pre").last).to_contain_text('"durability": "disk"')
