"""Spark's worker daemon with the decoder and the parser loaded; see `millstream.spark.daemon`."""

import contextlib
import sys

from millstream.spark import daemon


def main() -> None:
    daemon.prefer_installed_pyspark()
    with contextlib.redirect_stdout(sys.stderr), contextlib.suppress(ImportError):
        from millstream.pipeline.job import ranges  # noqa: F401 - what planning and tasks import

        if daemon.runs_tasks():
            _load_for_tasks()
    daemon.main()


def _load_for_tasks() -> None:
    import pyarrow.parquet  # noqa: F401

    from millstream.pipeline.job import storing  # noqa: F401
    from millstream.pipeline.job.plain import sift
    from millstream.pipeline.stores.influx import posting  # noqa: F401
    from millstream.pipeline.stores.parquet import staging  # noqa: F401

    sift.load()


if __name__ == "__main__":
    main()
