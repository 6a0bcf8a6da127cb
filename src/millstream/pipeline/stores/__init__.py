"""The pipeline's stores, behind one small interface.

This package holds the interface and its queries (`base.py`), its rows and tables (`rows.py`), the embedded store of
Parquet files (`parquet/`), the InfluxDB store (`influx/`), and `open_store`, which selects one by URL. It may use
pyspark to write and DuckDB to read, imported where they are used. It must not deal with topics, committed offsets or
our own API: a store knows points, rollups and events, not their source.
"""
