"""One Spark session for all tests of a process, with the settings of `millstream pipeline`; it takes ten seconds."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from _pytest.runner import runtestprotocol

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_ATTEMPTS = 10
_BUSY_MACHINE = "failed to connect back"
"""Spark gives a Python process ten seconds to start. On a busy machine that is too short, and it cannot be set."""

CONNECTOR_JARS = os.environ.get("MILLSTREAM_TEST_SPARK_KAFKA_JARS")
"""A directory with Spark's own Kafka connector and what it needs; its tests are skipped without."""


_SMALL = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
    # It computes with rows that the driver has before there is a task; the rows of the tests are to take the usual way.
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation",
}


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    pytest.importorskip("pyspark", reason="the `spark` extra is not installed")
    from millstream.pipeline.job.parts import open_session

    made = open_session("millstream-tests", "local[2]", {**_SMALL, **_connector()})
    made.sparkContext.setLogLevel("ERROR")
    yield made
    made.stop()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """Runs a test again when all that failed was the start of a Python process; for the conftest of Spark's tests."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for attempt in range(1, _ATTEMPTS + 1):
        if attempt > 1:
            item._initrequest()  # type: ignore[attr-defined] # new fixtures
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        if not any(each.failed and _BUSY_MACHINE in each.longreprtext for each in reports):
            break
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _connector() -> dict[str, str]:
    if CONNECTOR_JARS is None:
        return {}
    return {"spark.jars": ",".join(str(jar) for jar in sorted(Path(CONNECTOR_JARS).glob("*.jar")))}
