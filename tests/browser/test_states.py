"""What the console shows when there is nothing to show."""

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import Page, expect

from support.browsing import load
from support.fleet_api import FleetApi, fill, write_status

OpenPage = Callable[..., Page]


def test_says_that_the_api_stopped_and_recovers(open_page: OpenPage, own_api: FleetApi) -> None:
    fill(own_api.directory)
    page = open_page(own_api.start().url)
    expect(page.locator("a.cell")).to_have_count(16)

    own_api.stop()

    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("the query API does not answer")
    expect(page.locator("a.cell")).to_have_count(16)
    own_api.start()
    # The page tries again by itself too, and may have done so just now.
    with suppress(PlaywrightError):
        alert.get_by_role("button", name="Try now").click(timeout=2000)
    expect(alert).to_have_count(0)


def test_waits_for_the_first_points_and_then_shows_them(open_page: OpenPage, own_api: FleetApi) -> None:
    write_status(own_api.directory, datetime.now(UTC))
    page = open_page(own_api.start().url)
    expect(page.get_by_text("No telemetry yet")).to_be_visible()
    expect(page.get_by_text("The pipeline is running and waits for records")).to_be_visible()

    fill(own_api.directory)

    expect(page.locator("a.cell")).to_have_count(16)


def test_says_that_the_pipeline_stopped(open_page: OpenPage, own_api: FleetApi) -> None:
    fill(own_api.directory)
    write_status(own_api.directory, datetime.now(UTC) - timedelta(minutes=5))

    page = open_page(own_api.start().url)

    expect(page.get_by_role("region", name="Pipeline")).to_contain_text("stopped")
    expect(page.locator(".kpi.critical")).to_contain_text("pipeline stopped")


def test_unknown_things_have_a_way_back(open_page: OpenPage, shared_api: FleetApi) -> None:
    for address, title in (
        ("gpus/GPU-none", "Unknown GPU"),
        ("hosts/none", "Unknown host"),
        ("x", "There is no such view"),
    ):
        page = open_page(f"{shared_api.url}/#/{address}")
        expect(page.get_by_text(title)).to_be_visible()
        page.get_by_role("main").get_by_role("link").click()
        expect(page.get_by_role("heading", level=1, name="Fleet")).to_be_visible()


def test_asks_for_the_token_that_the_api_wants(open_page: OpenPage, own_api: FleetApi) -> None:
    fill(own_api.directory)
    own_api.start(token="right-one")
    page = open_page(own_api.url)
    field = page.get_by_label("The query API asks for a token")

    field.fill("wrong one")
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_text("did not accept this token")).to_be_visible()
    page.get_by_label("did not accept").fill("right-one")
    page.get_by_role("button", name="Continue").click()

    expect(page.locator("a.cell")).to_have_count(16)
    load(page.reload)
    expect(page.locator("a.cell")).to_have_count(16)
    load(lambda: page.goto(f"{own_api.url}/docs"))
    page.get_by_label("Token").fill("right-one")
    page.locator("#hosts > summary").click()
    page.locator("#hosts button[type=submit]").click()
    expect(page.locator("#hosts h3")).to_contain_text("200 OK")
