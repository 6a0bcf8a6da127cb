"""The embedded store: Parquet files in a directory, written by Spark, read by DuckDB, merged in the background.

Lives here: where files are and which of them count (`layout.py`), what Spark writes and reads (`frames.py`), merging
and expiring (`compaction.py`), DuckDB (`engine.py`), and the store itself with its questions (`store.py`).

The rules that keep it right without a lock, a journal or a server, also on a shared file system:

1. A data file is written elsewhere, synced, and renamed into place; it never changes afterwards.
2. A merged file says beside it, in a file written before it, which files it replaces. A reader ignores those, so the
   rename of the merged file is the switch. Replaced files are deleted only after a grace time.
3. Readers count each identity once. So a batch that was written twice or in part, and two merges at once, are
   harmless; nothing depends on names or versions being used only once.
"""
