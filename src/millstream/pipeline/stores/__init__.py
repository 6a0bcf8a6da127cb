"""Where the pipeline puts what it computed, behind one small interface.

Lives here: the interface with its questions (`base.py`), the rows and tables it speaks in (`rows.py`), the embedded
store of Parquet files (`parquet/`), the InfluxDB store (`influx/`), and `open_store`, which chooses by URL. May come
in: pyspark to write and DuckDB to read, imported where they are used. Must not: topics, offsets to commit, HTTP of
our own API; a store knows points, rollups and events, not where they came from.
"""
