"""Millstream: one durable, replicated log that speaks Kafka, HTTP and MQTT."""

__version__ = "0.1.0"
