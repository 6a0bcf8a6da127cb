"""The documentation page of the query API: a call is filled in, sent, answered, and paged through."""

import json
from collections.abc import Callable

from playwright.sync_api import Page, expect

from support.fleet_api import GPUS_PER_HOST, HOSTS, FleetApi


def test_a_call_is_tried_out_and_paged_through(shared_api: FleetApi, open_page: Callable[..., Page]) -> None:
    page = open_page(f"{shared_api.url}/docs")
    page.locator("#gpus > summary").click()
    page.locator("#gpus-limit").fill(str(GPUS_PER_HOST))
    seen: list[str] = []
    page.locator("#gpus button[type=submit]").click()
    for number in range(HOSTS):
        expect(page.locator("#gpus h3")).to_contain_text("200 OK")
        if number:
            expect(page.locator("#gpus pre.address")).to_contain_text("cursor=")
        answer = json.loads(page.locator("#gpus [role=status] pre").last.inner_text())
        seen += [gpu["uuid"] for gpu in answer["gpus"]]
        if answer["next_cursor"] is not None:
            page.locator("#gpus").get_by_role("button", name="Next page").click()
    assert len(set(seen)) == HOSTS * GPUS_PER_HOST
    expect(page.locator("#gpus").get_by_role("button", name="Next page")).to_be_disabled()


def test_a_mistake_is_explained_on_the_page(shared_api: FleetApi, open_page: Callable[..., Page]) -> None:
    page = open_page(f"{shared_api.url}/docs")
    page.locator("#telemetry > summary").click()
    page.locator("#telemetry-uuid").fill("GPU-unknown/with slash")
    page.locator("#telemetry-end_time").fill("tomorrow")
    page.locator("#telemetry button[type=submit]").click()
    expect(page.locator("#telemetry h3")).to_contain_text("40")
    page.locator("#telemetry-uuid").fill("GPU-unknown")
    page.locator("#telemetry button[type=submit]").click()
    expect(page.locator("#telemetry [role=status]")).to_contain_text("end_time is 'tomorrow'")
