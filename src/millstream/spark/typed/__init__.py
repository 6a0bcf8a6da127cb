"""Typed keys and values: decodes the bytes of records into columns of a schema's types, in the worker that reads the
log.

This package holds the columns of a frame (`layout.py`), the Python types and Arrow columns for Spark's types
(`types.py`), the formats (`formats.py`), and the treatment of malformed records (`rows.py`). It turns bytes and Arrow
into Arrow; nothing here knows clusters or offsets to read.
"""
