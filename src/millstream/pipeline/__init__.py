"""GPU telemetry through the log: the streamer that puts it in, the Spark job that stores it, the API that answers.

`metrics` and `record` say what a telemetry point is; `streamer` and the files around it (`sources`, `fleet`) make
points; `job` reads, checks and stores them; `stores` keep them; `api` and `report` show them. Comes in: CSV files,
topics of any Kafka cluster, settings. May import `spark`, `client`, `protocol`, `config`, never the broker: the
pipeline is an application. pyspark and duckdb are imported where they are used, because the streamer needs neither.
"""
