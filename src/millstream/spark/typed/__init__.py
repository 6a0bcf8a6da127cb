"""Typed keys and values: from the bytes of records to columns of the types that a schema names, in the worker that
reads the log.

Lives here: which columns a frame has (`layout.py`), the Python types and Arrow columns of Spark's types (`types.py`),
the formats (`formats.py`), and what becomes of records that do not fit (`rows.py`). Bytes and Arrow come in, Arrow
goes out; nothing here knows clusters or offsets to read.
"""
