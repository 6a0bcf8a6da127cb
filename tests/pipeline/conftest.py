"""The shared Spark session; `broker` and `new_topic` come from the top."""

from support.spark import spark

__all__ = ["spark"]
