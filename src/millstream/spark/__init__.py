"""Spark's door to Kafka logs: the data source `format("millstream")`, its column decoder, and a ready session.

It speaks plain Kafka and needs no jars, so it reads and writes any Kafka cluster. Comes in: options of Spark, bytes of
brokers. Must not come in: the broker's rooms (the source knows the cluster by its protocol alone), and pyspark at
import time: `session` and `lag_of` are safe to import where Spark is not installed.
"""

from millstream.spark.progress import SourceLag, lag_of
from millstream.spark.session import session

__all__ = ["SourceLag", "lag_of", "session"]
