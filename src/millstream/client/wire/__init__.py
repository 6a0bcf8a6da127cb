"""A blocking Kafka client for our own tools: the command line, `admin`, backups, Spark's tasks.

It does what librdkafka does not: requests of any kind, the bytes of record batches as the broker sent them, and words
for one node of a cluster. Comes in: settings as values. Must not come in: a thread, Spark, numpy, a node.
"""
