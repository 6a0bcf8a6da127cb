"""How the cells of the pipeline's scenarios are called."""

PARQUET = "pipeline, local[2]: a topic checked, stored and rolled up in Parquet"
PARQUET_FROM_TEXT = "pipeline, local[2]: text files checked, stored and rolled up in Parquet"
PARQUET_RATIO = "pipeline, local[2], to Parquet: topic against text files"
INFLUX = "pipeline, local[2]: a topic checked and stored in InfluxDB"
INFLUX_DIRECT = "one process, lines made before: 5,000-point posts to InfluxDB"
INFLUX_RATIO = "pipeline, local[2], to InfluxDB: against one process that only posts"
BAD_SHARES = (0.01, 0.5)
LATENCY_RATE = 5_000


def latency_name(percentile: str) -> str:
    return f"pipeline: produce to queryable at {LATENCY_RATE:,} points/s, {percentile}"


def bad_name(share: float) -> str:
    return f"pipeline, local[2]: a topic with {share:.0%} bad records checked and stored in Parquet"
