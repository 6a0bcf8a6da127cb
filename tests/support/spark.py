"""One Spark session for all tests of a process: starting one takes ten seconds."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


CONNECTOR_JARS = os.environ.get("MILLSTREAM_TEST_SPARK_KAFKA_JARS")
"""A directory with Spark's own Kafka connector and what it needs; its tests are skipped without."""


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
            **_connector(),
        },
    )
    made.sparkContext.setLogLevel("ERROR")
    yield made
    made.stop()


def _connector() -> dict[str, str]:
    if CONNECTOR_JARS is None:
        return {}
    return {"spark.jars": ",".join(str(jar) for jar in sorted(Path(CONNECTOR_JARS).glob("*.jar")))}
