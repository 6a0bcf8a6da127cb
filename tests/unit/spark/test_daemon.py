"""The worker daemon's way to find PySpark."""

import sys
from pathlib import Path

import pytest

from millstream.spark.daemon import prefer_installed_pyspark


def test_the_installed_package_comes_before_its_own_zip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site-packages" / "pyspark"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    own, jar = str(package / "python" / "lib" / "pyspark.zip"), str(package / "jars" / "spark-core.jar")
    monkeypatch.setattr(sys, "path", [own, jar, "/elsewhere", str(package.parent)])
    prefer_installed_pyspark()
    assert sys.path == ["/elsewhere", str(package.parent), own, jar]


def test_the_zip_of_another_installation_stays_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site-packages" / "pyspark"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    path = ["/opt/spark/python/lib/pyspark.zip", str(package.parent)]
    monkeypatch.setattr(sys, "path", list(path))
    prefer_installed_pyspark()
    assert sys.path == path
