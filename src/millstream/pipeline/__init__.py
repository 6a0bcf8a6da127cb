"""GPU telemetry through the log: the streamer that puts it in, the Spark job that stores it, the API that answers.

`metrics` and `record` define a telemetry point; `streamer` and the files around it (`sources`, `fleet`) produce points;
`job` reads, checks and stores them; `stores` keep them; `api` and `report` show them. The input is CSV files, topics of
any Kafka cluster, and settings. The pipeline is an application: it may import `spark`, `client`, `protocol` and
`config`, but never the broker. pyspark and duckdb are imported where they are used, because the streamer needs neither.
"""
