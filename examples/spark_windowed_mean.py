"""Ten lines of PySpark for a notebook: read telemetry as typed rows, compute a mean per minute, and draw it.

spark-submit examples/spark_windowed_mean.py localhost:9092 telemetry mean.png
"""

import sys

from pyspark.sql import functions as f

import millstream.spark

servers, topic, picture = sys.argv[1:]
spark = millstream.spark.session()
points = (
    spark.read.format("millstream").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    .option("value.format", "json").schema("value struct<timestamp: timestamp, metric_name: string, value: double>")
    .load().select("value.*")
)  # fmt: skip
minutes = points.groupBy(f.window("timestamp", "1 minute").start.alias("minute"), "metric_name").agg(
    f.mean("value")
)
table = minutes.toPandas().pivot_table("avg(value)", "minute", "metric_name")  # type: ignore[attr-defined]
table.plot(subplots=True, figsize=(9, 2 * len(table.columns)), title="Mean per minute")[0].figure.savefig(
    picture
)
print(f"{len(table)} minutes of {len(table.columns)} metrics in {picture}")
