"""Declarations of records: the example can be used, and what cannot be is named."""

from pathlib import Path

import pytest

from millstream.pipeline.declaration import DCGM, DeclarationError, load_declaration

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "sensors" / "pipeline.yaml"


def test_the_example_is_a_declaration() -> None:
    declared = load_declaration(EXAMPLE)
    assert declared.members() == ("at", "quantity", "sensor", "reading", "site", "labels")
    assert declared.maps() == {"labels"}
    assert declared.metrics["temperature"].maximum == 120


def test_dcgm_reads_both_spellings_and_labels() -> None:
    assert {"Hostname", "hostname", "labels"} <= set(DCGM.members())
    assert DCGM.maps() == {"labels"}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("  time: [at]\n", ""), r"fields\.time is missing"),
        (("hostname:", "host:"), r"fields\.host is no column of a point"),
        (("minimum: -60", "minimum: 160"), r"metrics\.temperature has a minimum above"),
        (("minimum: -60", "least: -60"), "unknown field `least`"),
        (("value: [reading]", "value: [labels]"), "cannot be an object and a value"),
        (("metrics:", "metrics: ["), "pipeline.yaml"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, change: tuple[str, str], told: str) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(EXAMPLE.read_text().replace(*change))
    with pytest.raises(DeclarationError, match=told):
        load_declaration(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match=r"none\.yaml cannot be read"):
        load_declaration(tmp_path / "none.yaml")
