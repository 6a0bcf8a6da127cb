"""A blocking Kafka client for our own tools: the command line, `admin`, backups, Spark's tasks.

It does what librdkafka cannot: requests of any kind, record batches as raw bytes, and requests to one particular node.
It takes its settings as values. It must not use threads, Spark, numpy, or code of a node.
"""
