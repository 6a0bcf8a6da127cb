"""The Spark session of the pipeline's commands."""

import os
from collections.abc import Mapping

from pyspark.sql import SparkSession

from millstream.spark import session

_SETTINGS = {
    # Times in the store are UTC whatever the machine thinks.
    "spark.sql.session.timeZone": "UTC",
    # Micro-batches and re-computations share the cores; neither waits for the other to end.
    "spark.scheduler.mode": "FAIR",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": str(max(2, min(os.cpu_count() or 2, 8))),
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "20",
    # The other one starts a dozen processes for each file that it writes to a local directory.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # Parsing makes methods that Java does not compile above this size; Spark then splits them.
    "spark.sql.codegen.hugeMethodLimit": "8000",
    # Arrow functions get 10,000 rows at a time; Spark would measure the size of a batch after each row.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    # Tasks of a re-computation are short, so that a micro-batch gets its turn.
    "spark.sql.files.maxPartitionBytes": "32m",
    # Groups that are computed by Spark are a few thousand; from 128 on it would sort its rows.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "4096",
    "spark.driver.memory": "2g",
    # Spark would ask the JVM several times for each column that is named, to tell later where in our code that was.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # Records have `Hostname` or `hostname`.
    "spark.sql.caseSensitive": "true",
}


def open_session(
    name: str, master: str, settings: Mapping[str, str], *, verbose: bool = False
) -> SparkSession:
    spark = session(app_name=name, master=master, config={**_SETTINGS, **settings})
    # What fails is told by the command, in one line; Spark's own account is pages long.
    spark.sparkContext.setLogLevel("WARN" if verbose else "OFF")
    return spark
