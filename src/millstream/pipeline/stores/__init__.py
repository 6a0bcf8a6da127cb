"""Where the pipeline puts what it computed, behind one small interface.

Lives here: the interface (`base.py`), the questions, rows and tables it speaks in (`query.py`, `rows.py`,
`tables.py`), the embedded store of Parquet files (`parquet/`), the InfluxDB store (`influx/`), and `open_store`, which
chooses by URL. May come in: pyspark to write and DuckDB to read, imported where they are used. Must not: topics,
offsets to commit, HTTP of our own API; a store knows points, rollups and events, not where they came from.
"""
