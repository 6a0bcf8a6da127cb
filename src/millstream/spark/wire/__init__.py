"""A small blocking Kafka client: connections with their security, four requests, leaders and retries.

Lives here because a task needs the bytes of record batches as the broker sent them, which no client library hands
out. Comes in: settings as values. Must not come in: Spark.
"""
