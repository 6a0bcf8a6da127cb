"""Spark's worker daemon with the decoder loaded, so that the workers forked from it start with it.

Set as spark.python.daemon.module by `session`; without it every new worker spends about half a second on imports.
"""

import contextlib

from pyspark import daemon


def main() -> None:
    # Another job's workers must start even where the decoder's libraries are missing; the source then says so.
    with contextlib.suppress(ImportError):
        from millstream.spark import columns

        columns.load()
    daemon.manager()


if __name__ == "__main__":
    main()
