"""Reads and writes Kafka logs in Spark: the data source `format("millstream")`, its column decoder, and a session.

It speaks plain Kafka and needs no jars, so it works with any Kafka cluster. It must not import the broker's packages,
because it knows a cluster only by its protocol. Nor may it import pyspark at import time: `session` and `lag_of` can be
imported where Spark is not installed.
"""

from millstream.spark.progress import SourceLag, lag_of
from millstream.spark.session import session

__all__ = ["SourceLag", "lag_of", "session"]
