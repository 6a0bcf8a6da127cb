"""The shared Spark session; `broker` and `new_topic` come from the top."""

from support.spark import pytest_runtest_protocol, spark

__all__ = ["pytest_runtest_protocol", "spark"]
