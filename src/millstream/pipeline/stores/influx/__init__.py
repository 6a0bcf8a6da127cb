"""The InfluxDB store: line protocol in, InfluxQL out, for 1.x and 2.x servers.

This package holds the server's address and HTTP with bounded retries (`connection.py`), the building of lines in Arrow
(`lines.py`) and their posting by executors (`posting.py`), reading (`queries.py`), and the store (`store.py`).

A point's measurement is its metric; its tags are the record's strings under their names in the record; it has the field
"value" and the record's time. Writing a point again overwrites it with itself. Rollups are in the measurements
"rollups_1m" and "rollups_1h", events in the measurement "events". Re-computation reads from a lake of Parquet files,
which the store keeps beside the pipeline's checkpoint, because reading minutes back from the server for every rollup
would cost more than all the writing.
"""
