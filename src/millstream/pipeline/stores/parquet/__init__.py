"""The embedded store: Parquet files in a directory, written by Spark, read by DuckDB, merged in the background.

This package holds the layout of files and the choice of those that count (`layout.py`), the reads and writes of Spark
(`frames.py`), merging and expiring (`compaction.py`), DuckDB (`engine.py`), and the store's queries (`store.py`).

These rules keep it correct without a lock, a journal or a server, even on a shared file system:

1. A data file is written elsewhere, synced, and renamed into place; it never changes afterwards.
2. A side file, written before a merged file, lists the files that it replaces. A reader ignores those, so the
   rename of the merged file is the switch. Replaced files are deleted only after a grace time.
3. Readers count each identity once. So a batch written twice or in part is harmless, and so are concurrent merges;
   names and versions need not be unique.
"""
