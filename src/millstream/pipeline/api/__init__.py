"""The query API: HTTP in front of a store, for people, programs and the console.

This package holds the calls and their parameters (`openapi.yaml`), their answers (`calls.py`), and the routes and the
server (`server.py`). It reads from a `StoreReader`, the job's status files, and a directory with the console's files.
It must not use Spark or brokers, and must not change the store.
"""
