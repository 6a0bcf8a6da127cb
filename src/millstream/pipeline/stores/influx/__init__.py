"""The InfluxDB store: line protocol in, InfluxQL out, for 1.x and 2.x servers.

Lives here: the server's address and HTTP with bounded retries (`connection.py`), lines built in Arrow (`lines.py`) and
posted by executors (`posting.py`), reading (`queries.py`), and the store (`store.py`).

A point is measurement = metric, the record's strings as tags under their names in the record, the field "value", and
the record's time: writing it again overwrites it with itself. Rollups are the measurements "rollups_1m" and
"rollups_1h", events the measurement "events". Re-computation reads from a lake of Parquet files that the store keeps
beside the pipeline's checkpoint, because reading minutes back from the server for every rollup would cost more than
all the writing.
"""
