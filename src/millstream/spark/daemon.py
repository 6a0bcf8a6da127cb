"""Spark's worker daemon with the decoder loaded, so that workers forked from it have it at once.

Set as spark.python.daemon.module by `session`; without it every new worker spends about a second on imports.
"""

import contextlib
import gc
import importlib
import sys
from pathlib import Path

_TASKS = "pyspark.worker"


def runs_tasks() -> bool:
    """Whether this daemon's workers run tasks. Spark has other daemons for planning, with another module to run."""
    return _work() == _TASKS


def prefer_installed_pyspark() -> None:
    """Move the zip of Spark's Python sources to the end of the path, because every process compiles a zip again.

    Only if the zip is part of an installed package, which holds the same code in compiled form.
    """
    packages = [
        Path(entry, "pyspark") for entry in sys.path if Path(entry, "pyspark", "__init__.py").is_file()
    ]
    bundled = [entry for entry in sys.path if any(package in Path(entry).parents for package in packages)]
    sys.path[:] = [entry for entry in sys.path if entry not in bundled] + bundled


def main() -> None:
    prefer_installed_pyspark()
    # Spark reads a port number from the standard output; other jobs' workers must start even where the decoder's
    # libraries are missing (the source then says so).
    with contextlib.redirect_stdout(sys.stderr), contextlib.suppress(ImportError):
        importlib.import_module(_work())
        if runs_tasks():
            from millstream.spark import columns, fetching, tasks  # noqa: F401 - what a task imports
            from millstream.spark.typed import rows  # noqa: F401

            columns.load()
        else:
            from millstream.spark import readers, source  # noqa: F401 - what planning imports
    from pyspark import daemon

    # A worker runs the garbage collector after each task, which would scan everything loaded here.
    gc.collect()
    gc.freeze()
    daemon.manager()


def _work() -> str:
    """The module that the workers run."""
    return sys.argv[1] if len(sys.argv) > 1 else _TASKS


if __name__ == "__main__":
    main()
