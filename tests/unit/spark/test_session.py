import stat
import subprocess
from pathlib import Path

import pytest

from millstream.spark import java


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_292"', 8),
        ('JAVA_VERSION="21"', 21),
        ('openjdk version "25" 2025-09-16', 25),
        ("command not found", None),
    ],
)
def test_the_version_of_a_java(text: str, version: int | None) -> None:
    assert java.version_in(text) == version


def fake_java(home: Path, version: str) -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    program = home / "bin" / "java"
    program.write_text("#!/bin/sh\necho $*\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return home


def test_the_java_that_is_set_is_taken_if_it_is_new_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, old = fake_java(tmp_path / "new", "21.0.1"), fake_java(tmp_path / "old", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(new))
    assert java.java_home() == new
    monkeypatch.setenv("JAVA_HOME", str(old))
    assert java.java_home() != old


def test_the_wrapper_drops_the_module_that_the_wheel_lacks(tmp_path: Path) -> None:
    real = fake_java(tmp_path / "home", "21") / "bin" / "java"
    wrapper = tmp_path / "java"
    wrapper.write_text(java._WRAPPER.format(java=real))
    wrapper.chmod(0o700)
    given = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a b", "Main"]
    said = subprocess.run([wrapper, *given], capture_output=True, text=True, check=True).stdout
    assert said == "-Xmx1g -cp a b Main\n"
