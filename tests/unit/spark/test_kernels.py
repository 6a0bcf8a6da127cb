"""Where compiled code may be kept; what it computes is tested with the columns."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("numba", reason="the `spark` extra is not installed")

import numba

from millstream.spark import kernels


def test_without_a_place_for_its_cache_the_code_still_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", numba.config.CACHE_DIR)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    # Code from no file has no place anywhere.
    names: dict[str, object] = {}
    exec("def double(number):\n    return 2 * number\n", names)
    assert kernels.compiled(names["double"])(21) == 42  # type: ignore[operator, type-var]


def test_the_temporary_cache_must_be_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", numba.config.CACHE_DIR)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    assert not kernels._use_temporary_cache()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert kernels._use_temporary_cache()
    assert Path(numba.config.CACHE_DIR).parent == tmp_path


def test_planning_a_query_loads_neither_the_decoder_nor_arrow() -> None:
    pytest.importorskip("pyspark", reason="the `spark` extra is not installed")
    code = (
        "import sys, millstream.spark.readers, millstream.spark.readers, pyspark_millstream;"
        "sys.exit(', '.join({'numba', 'pyarrow', 'confluent_kafka', 'kio'} & sys.modules.keys()) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
