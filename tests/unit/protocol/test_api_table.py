from pathlib import Path

from millstream.protocol.api_table import render_api_table

PAGE = Path(__file__).parents[3] / "docs" / "COMPATIBILITY.md"
BEGIN, END = "<!-- apis: begin -->\n", "<!-- apis: end -->"


def test_the_page_lists_what_is_served() -> None:
    table = PAGE.read_text().split(BEGIN)[1].split(END)[0].strip()
    assert table == render_api_table().strip(), (
        "put what `python -m millstream.protocol.api_table` prints between the page's markers"
    )


def test_versions_that_are_only_advertised_are_not_called_served() -> None:
    assert "| 0 | Produce | 3 to 13 | 9 |" in render_api_table()
