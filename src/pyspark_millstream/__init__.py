"""What Spark looks for: it imports every top-level module called pyspark_* and registers its `DefaultSource`.

Nothing else lives here; the source is in `millstream.spark`.
"""

from millstream.spark.source import MillstreamDataSource as DefaultSource

__all__ = ["DefaultSource"]
