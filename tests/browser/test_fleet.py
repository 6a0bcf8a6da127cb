"""The console's first view, and what it leads to."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, Page, expect

from support.browsing import load
from support.drawing import colours
from support.fleet_api import FleetApi, uuid_of
from support.waiting import wait_for

OpenPage = Callable[..., Page]


def test_fleet_is_shown(open_page: OpenPage, shared_api: FleetApi) -> None:
    page = open_page(shared_api.url)

    expect(page.get_by_role("heading", level=1, name="Fleet")).to_be_visible()
    expect(kpi(page, "Hosts")).to_have_text("2")
    expect(kpi(page, "GPUs")).to_contain_text("16")
    expect(kpi(page, "Lag")).to_have_text("42")
    expect(page.get_by_role("region", name="Pipeline")).to_contain_text("4.32k")
    expect(page.locator(".count.critical")).to_have_text("1 critical")
    expect(page.get_by_role("region", name="Hottest GPUs").locator("tbody tr")).to_have_count(5)


def test_charts_and_heat_map_are_drawn(open_page: OpenPage, shared_api: FleetApi) -> None:
    page = open_page(shared_api.url)

    expect(page.get_by_role("img", name=re.compile("GPU utilisation, newest values: mean"))).to_be_visible()
    expect(page.get_by_role("img", name=re.compile("GPU temperature, newest values: p95"))).to_be_visible()
    lines = wait_for(
        lambda: colours(page, ".columns > .chart canvas"), lambda seen: min(seen, default=0) > 2, "lines"
    )
    assert len(lines) == 2
    wait_for(lambda: colours(page, ".strip"), lambda seen: min(seen, default=0) > 0, "strips of two hosts")


def test_cursor_shows_the_same_moment_in_both_charts(open_page: OpenPage, shared_api: FleetApi) -> None:
    page = open_page(shared_api.url)
    expect(page.get_by_role("img", name=re.compile("GPU utilisation, newest values: mean"))).to_be_visible()

    page.locator(".columns > .chart .u-over").first.hover()

    moments = page.locator(".columns > .chart .at")
    expect(moments.first).to_have_text(re.compile(r"\d\d:\d\d:\d\d$"))
    wait_for(moments.all_inner_texts, lambda texts: len(set(texts)) == 1, "the same moment in both")


def test_range_is_chosen_with_the_keyboard_and_kept_in_the_address(
    open_page: OpenPage, shared_api: FleetApi
) -> None:
    page = open_page(shared_api.url)
    page.get_by_role("radio", name="15m").focus()

    page.keyboard.press("ArrowRight")

    expect(page).to_have_url(f"{shared_api.url}/#/?range=1h")
    expect(page.get_by_role("radio", name="1h")).to_be_checked()


def test_gpu_is_clicked(open_page: OpenPage, shared_api: FleetApi) -> None:
    page = open_page(shared_api.url)

    page.get_by_role("link", name=re.compile("node-1 GPU 3: ")).click()

    expect(page).to_have_url(f"{shared_api.url}/#/gpus/{uuid_of(1, 3)}")
    expect(page.get_by_role("heading", level=1, name="node-1 / GPU 3")).to_be_visible()
    expect(page.locator(".chart")).to_have_count(5)
    wait_for(lambda: colours(page, ".chart canvas"), lambda seen: min(seen, default=0) > 2, "a GPU's charts")


def test_gpu_shows_single_points_in_a_short_range(open_page: OpenPage, shared_api: FleetApi) -> None:
    page = open_page(f"{shared_api.url}/#/gpus/{uuid_of(0, 0)}?range=5m")

    expect(page.locator(".chart .legend").first).to_contain_text("value")
    wait_for(lambda: colours(page, ".chart canvas"), lambda seen: min(seen, default=0) > 1, "a GPU's points")


def test_arrow_keys_walk_over_the_heat_map(open_page: OpenPage, shared_api: FleetApi) -> None:
    page = open_page(shared_api.url)
    page.get_by_role("link", name=re.compile("node-0 GPU 0: ")).focus()

    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("link", name=re.compile("node-1 GPU 1: "))).to_be_focused()
    page.keyboard.press("Enter")

    expect(page).to_have_url(f"{shared_api.url}/#/gpus/{uuid_of(1, 1)}")


def test_host_lists_its_gpus(open_page: OpenPage, shared_api: FleetApi) -> None:
    page = open_page(shared_api.url)

    page.get_by_role("rowheader").get_by_role("link", name="node-1", exact=True).click()

    expect(page.get_by_role("heading", level=1, name="node-1")).to_be_visible()
    expect(page.get_by_role("region", name="8 GPUs").locator("tbody tr")).to_have_count(8)


def test_a_silent_gpu_is_silent_everywhere(open_page: OpenPage, shared_api: FleetApi) -> None:
    page = open_page(shared_api.url)
    expect(kpi(page, "GPUs")).to_contain_text("1 silent")
    cell = page.get_by_role("link", name="node-1 GPU 7: silent")
    expect(cell).to_have_class(re.compile("silent"))
    expect(page.locator(".heat-scale")).to_contain_text("silent")
    expect(page.locator(".heat-scale")).to_contain_text("no data")

    load(lambda: page.goto(f"{shared_api.url}/#/hosts/node-1"))
    row = page.get_by_role("region", name="8 GPUs").get_by_role("row").filter(has_text="GPU 7")
    expect(row).to_contain_text("silent")
    expect(row).not_to_contain_text("%")

    cell_of_host = row.get_by_role("link", name="node-1 GPU 7: silent")
    cell_of_host.click()
    expect(page.get_by_role("heading", level=1, name="node-1 / GPU 7")).to_be_visible()
    expect(kpi(page, "Utilisation")).to_have_text("–")
    expect(kpi(page, "Last seen")).to_contain_text("silent")
    expect(page.get_by_role("region", name="Active")).to_contain_text("A GPU is silent")


def test_values_are_in_units_that_people_use(open_page: OpenPage, shared_api: FleetApi) -> None:
    page = open_page(f"{shared_api.url}/#/gpus/{uuid_of(0, 0)}")

    expect(
        page.get_by_role("img", name=re.compile(r"Total energy, newest values: .*mean \d+(\.\d)? kWh"))
    ).to_be_visible()
    expect(
        page.get_by_role("img", name=re.compile(r"Memory used, newest values: .*mean \d+(\.\d)? GiB"))
    ).to_be_visible()
    expect(kpi(page, "Power")).to_have_text(re.compile(r"^\d{3} W$"))


def test_the_way_of_the_pipeline_is_known_from_before_the_page_was_opened(
    open_page: OpenPage, shared_api: FleetApi
) -> None:
    page = open_page(f"{shared_api.url}/#/pipeline")

    wait_for(lambda: colours(page, ".chart canvas"), lambda seen: min(seen, default=0) > 2, "two histories")
    page.locator(".chart .u-over").first.hover()
    expect(page.locator(".chart dd").first).to_have_text("4.00k")
    expect(page.get_by_text("since it was opened")).to_have_count(0)


def test_a_stretch_is_drawn_over_a_chart_and_the_whole_page_shows_it(
    open_page: OpenPage, shared_api: FleetApi
) -> None:
    page = open_page(shared_api.url)
    chart = page.locator(".columns > .chart .u-over").first
    expect(page.get_by_role("img", name=re.compile("GPU utilisation, newest values: mean"))).to_be_visible()
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    assert box is not None

    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 40, steps=4)
    page.mouse.up()

    expect(page).to_have_url(re.compile(r"#/\?from=2.*&to=2"))
    expect(page.get_by_role("columnheader", name="Mean, zoomed stretch")).to_be_visible()
    ranges = page.get_by_role("group", name="Time range")
    expect(ranges.get_by_role("radio", checked=True)).to_have_count(0)
    # Links keep it, and a click ends it.
    expect(page.get_by_role("link", name="Pipeline")).to_have_attribute("href", re.compile("from=2"))
    page.get_by_role("button", name="end the zoom").click()
    expect(page.get_by_role("radio", name="15m")).to_be_checked()


def test_the_time_zone_is_named(open_page: OpenPage, shared_api: FleetApi) -> None:
    page = open_page(shared_api.url, timezone_id="Asia/Kolkata")

    expect(page.get_by_role("navigation")).to_contain_text("Times in Asia/Calcutta (UTC+5:30)")


@pytest.mark.parametrize("width", [1440, 390])
def test_nothing_is_cut_off(open_page: OpenPage, shared_api: FleetApi, width: int) -> None:
    page = open_page(shared_api.url)
    page.set_viewport_size({"width": width, "height": 850})
    for view in ("fleet", f"gpus/{uuid_of(0, 0)}", "hosts/node-0", "pipeline", "events"):
        load(lambda: page.goto(f"{shared_api.url}/#/{view}"))  # noqa: B023
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(page.locator(".spinner")).to_have_count(0)
        cut = page.evaluate(CUT_OFF)
        assert cut == [], (view, width)


# Texts of tiles and legends that are wider than their box, and a page that is wider than its window.
CUT_OFF = """() => {
  const boxes = [...document.querySelectorAll(".kpi dd, .legend, .legend dd, .facts dd, figcaption, .segments")];
  const cut = boxes.filter((box) => box.scrollWidth > box.clientWidth + 1).map((box) => box.className + box.innerText);
  const page = document.documentElement;
  return page.scrollWidth > page.clientWidth + 1 ? [...cut, `the page: ${page.scrollWidth}`] : cut;
}"""


def test_events_that_ended_are_apart_from_those_that_go_on(open_page: OpenPage, shared_api: FleetApi) -> None:
    page = open_page(f"{shared_api.url}/#/events")

    active = page.get_by_role("region", name="Active").get_by_role("listitem")
    ended = page.get_by_role("region", name="Ended in this range").get_by_role("listitem")
    expect(active).to_have_count(2)
    expect(ended).to_have_count(2)
    expect(active.first).to_contain_text(re.compile(r"since \d\d:\d\d:\d\d · \d+ min"))
    expect(ended.first).to_contain_text("XID burst")
    expect(ended.first).to_contain_text(re.compile(r"\d\d:\d\d:\d\d to \d\d:\d\d:\d\d · 5 min"))


def test_events_are_filtered_by_severity(open_page: OpenPage, shared_api: FleetApi) -> None:
    page = open_page(shared_api.url)
    events = page.get_by_role("region", name="Events").get_by_role("listitem")
    expect(events).to_have_count(4)

    page.get_by_text("critical 2").click()

    expect(events).to_have_count(2)
    expect(events.first).to_contain_text("Thermal excursion")
    expect(page).to_have_url(f"{shared_api.url}/#/?severity=critical")
    events.first.get_by_text("Evidence").click()
    expect(events.first).to_contain_text("96.5")


def test_navigation_leads_to_every_view_it_names(open_page: OpenPage, shared_api: FleetApi) -> None:
    page = open_page(shared_api.url)
    for name in page.locator("nav li").all_inner_texts():
        page.get_by_role("navigation").get_by_role("link", name=name.strip()).click()
        expect(page.get_by_role("heading", level=1, name=name.strip())).to_be_visible()


def test_colours_follow_the_system_and_the_choice(open_page: OpenPage, shared_api: FleetApi) -> None:
    page = open_page(shared_api.url, color_scheme="dark")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")

    page.get_by_role("combobox", name="Colours").select_option("light")
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    load(page.reload)

    expect(page.locator("html")).to_have_attribute("data-theme", "light")


def kpi(page: Page, label: str) -> Locator:
    return page.locator(".kpi", has=page.get_by_text(label, exact=True)).locator("dd")
