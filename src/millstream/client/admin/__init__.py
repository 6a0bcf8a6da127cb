"""Kafka's admin requests as methods with typed results: `Admin` and, for asyncio, `AsyncAdmin`.

They use `client.wire`, so nothing here needs librdkafka. The operator's tools built on them (plans, explanations,
resets) are in `millstream.admin`.
"""
