from pathlib import Path

import pytest

from millstream.cli.settings import setting_rows
from millstream.config import ConfigError
from millstream.config.load import load_settings


def test_the_section_is_read_from_file_environment_and_flags(tmp_path: Path) -> None:
    file = tmp_path / "millstream.yaml"
    file.write_text(
        "pipeline:\n  topic: gpus\n  watermark_delay: 2m\n  temperature_warning: 80\n  data: /var/job\n"
    )
    settings = load_settings(
        file, {"MILLSTREAM_PIPELINE_TOPIC": "other"}, {"pipeline.trigger": "5s"}
    ).pipeline
    assert (settings.topic, settings.watermark_delay, settings.trigger) == ("other", 120_000, 5_000)
    assert settings.temperature_warning == 80.0
    assert settings.store_url == "parquet:/var/job/store"


def test_the_defaults_run_on_a_laptop() -> None:
    settings = load_settings().pipeline
    assert settings.bootstrap == "127.0.0.1:9092"
    assert settings.master == "local[*]"
    assert settings.store_url == "parquet:millstream-pipeline/store"


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("topics: x", "did you mean 'topic'"),
        ("trigger: often", "is not a duration"),
        ("api_port: 70000", "0 to 65535"),
        ("xid_burst_count: 0", "1 or more"),
        ("temperature_warning: hot", "write a plain number"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, complaint: str) -> None:
    file = tmp_path / "millstream.yaml"
    file.write_text(f"pipeline:\n  {line}\n")
    with pytest.raises(ConfigError, match=complaint) as error:
        load_settings(file)
    assert f"{file}:2: pipeline.{line.partition(':')[0]}" in str(error.value)


def test_a_token_is_not_shown() -> None:
    settings = load_settings(environ={"MILLSTREAM_PIPELINE_INFLUX_TOKEN": "secret"})
    assert settings.pipeline.influx_token == "secret"
    row = next(row for row in setting_rows(settings) if row.name == "pipeline.influx_token")
    assert row.value == "(hidden)"
