"""One Spark session for all tests of a process: starting one takes ten seconds."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    pytest.importorskip("pyspark", reason="the `spark` extra is not installed")
    from millstream.spark import session

    made = session(
        app_name="millstream-tests",
        master="local[2]",
        config={
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.memory": "1g",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.streaming.metricsEnabled": "false",
        },
    )
    made.sparkContext.setLogLevel("ERROR")
    yield made
    made.stop()
