"""Spark's worker daemon with the decoder and the parser loaded; see `millstream.spark.daemon`."""

import contextlib
import sys

from millstream.spark import daemon


def main() -> None:
    with contextlib.redirect_stdout(sys.stderr), contextlib.suppress(ImportError):
        import pyarrow.parquet  # noqa: F401 - what a task imports

        from millstream.pipeline.job import storing  # noqa: F401
        from millstream.pipeline.job.plain import sift
        from millstream.pipeline.stores.influx import posting  # noqa: F401
        from millstream.pipeline.stores.parquet import staging  # noqa: F401

        sift.load()
    daemon.main()


if __name__ == "__main__":
    main()
