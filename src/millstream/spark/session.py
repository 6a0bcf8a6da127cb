"""A Spark session that works: the right Python, the right Java, and workers that start with the decoder loaded."""

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from millstream.spark.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DEFAULTS = {"spark.python.daemon.module": "millstream.spark.daemon", "spark.ui.showConsoleProgress": "false"}
# Disables two checks that Arrow's Java library makes on every access, for bounds and for nulls: Spark never needs them.
_JAVA_OPTIONS = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
# A laptop's host name often resolves to an address that has changed by the time Spark connects to itself.
_LOCAL_DEFAULTS = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def session(
    app_name: str = "millstream", master: str = "local[*]", config: Mapping[str, str] | None = None
) -> "SparkSession":
    """A new session, or the one already running in this process, with `format("millstream")` ready to use.

        spark = millstream.spark.session()
        spark.read.format("millstream").option("kafka.bootstrap.servers", "localhost:9092") \\
            .option("subscribe", "events").load()

    With a cluster's master (spark://..., yarn, k8s://...) the machines need Millstream's `spark` extra installed under
    the same path as here, or `spark.pyspark.python` in `config`.
    """
    local = master.startswith("local")
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ImportError(
            "Spark comes with the extra millstream[spark]: pip install '.[spark]' in a clone"
        ) from error

    _prepare_environment(local)
    settings = {**_DEFAULTS, **(_LOCAL_DEFAULTS if local else {}), **(config or {})}
    for name in ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"):
        settings[name] = f"{_JAVA_OPTIONS} {settings.get(name, '')}".strip()
    builder = SparkSession.builder.appName(app_name).master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _prepare_environment(local: bool) -> None:
    """Set the variables that Spark's launcher and workers read; harmless once these run."""
    if local:
        # Another Python would lack our packages, and might have another version.
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ["JAVA_HOME"] = str(java_home())
