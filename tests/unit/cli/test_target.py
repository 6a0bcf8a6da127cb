"""How a cluster is named on the command line: properties and profiles."""

from pathlib import Path

import pytest

from millstream.cli.errors import UsageError
from millstream.cli.target import target_of

PROFILES = """
secure:
  bootstrap.servers: n1:9093,n2:9093
  security.protocol: SASL_SSL
  sasl.mechanism: SCRAM-SHA-256
  sasl.username: ann
  sasl.password: secret
  enable.ssl.certificate.verification: false
broken: 7
"""


@pytest.fixture(autouse=True)
def profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    file = tmp_path / "millstream" / "profiles.yaml"
    file.parent.mkdir()
    file.write_text(PROFILES)
    return file


def test_a_profile_names_the_cluster_and_its_security() -> None:
    target = target_of(None, ("sasl.username=bob",), "secure")
    assert target.bootstrap == "n1:9093,n2:9093"
    assert target.properties["sasl.username"] == "bob", "the command line goes before the profile"
    assert target.properties["enable.ssl.certificate.verification"] == "false"
    assert target_of("n3:9093", (), "secure").bootstrap == "n3:9093"


@pytest.mark.parametrize(
    ("name", "says"), [("nosuch", "it has secure, broken"), ("broken", "has no such profile")]
)
def test_a_profile_that_is_not_there_is_named(name: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        target_of(None, (), name)


def test_a_file_that_cannot_be_read_is_named(profiles: Path) -> None:
    profiles.unlink()
    with pytest.raises(UsageError, match=r"profiles\.yaml cannot be read"):
        target_of(None, (), "secure")


def test_a_property_is_a_name_and_a_value() -> None:
    with pytest.raises(UsageError, match="-X 'security' is not of the form KEY=VALUE"):
        target_of(None, ("security",), None)
