"""Kafka's admin requests as methods with typed results: `Admin` and, for asyncio, `AsyncAdmin`.

Over `client.wire`, so nothing here needs librdkafka. What an operator does with them (plans, explanations, resets) is
in `millstream.admin`.
"""
