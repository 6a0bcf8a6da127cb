from pathlib import Path

from millstream.config.load import load_settings
from millstream.config.manual import render_manual

MANUAL = Path(__file__).parents[3] / "docs" / "CONFIGURATION.md"


def test_the_manual_is_up_to_date() -> None:
    assert MANUAL.read_text() == render_manual(), (
        "run: python -m millstream.config.manual > docs/CONFIGURATION.md"
    )


def test_the_example_in_the_manual_is_valid(tmp_path: Path) -> None:
    example = render_manual().split("```yaml\n")[1].split("```")[0]
    file = tmp_path / "example.yaml"
    file.write_text(example)
    assert load_settings(file).topics[0].partitions == 12
