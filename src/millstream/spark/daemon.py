"""Spark's worker daemon with the decoder loaded, so that the workers forked from it start with it.

Set as spark.python.daemon.module by `session`; without it every new worker spends about a second on imports.
"""

import contextlib
import sys

from pyspark import daemon


def runs_tasks() -> bool:
    """Whether this daemon's workers run tasks. Spark has others, for planning, and names what they run."""
    return len(sys.argv) < 2 or sys.argv[1] == "pyspark.worker"


def main() -> None:
    # Spark reads a port number from the standard output; other jobs' workers must start even where the decoder's
    # libraries are missing (the source then says so).
    with contextlib.redirect_stdout(sys.stderr), contextlib.suppress(ImportError):
        if runs_tasks():
            from millstream.spark import columns, fetching, tasks  # noqa: F401 - what a task imports

            columns.load()
        else:
            from millstream.spark import batch_reader, source, stream_reader  # noqa: F401 - what planning imports
    daemon.manager()


if __name__ == "__main__":
    main()
