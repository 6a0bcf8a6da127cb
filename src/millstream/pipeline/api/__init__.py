"""The query API: HTTP in front of a store, for people, programs and the console.

Lives here: the calls and their parameters (`openapi.yaml`), their answers (`calls.py`), routes and server
(`server.py`). May come in: a `StoreReader`, the files that the job writes about itself, a directory with the console's
files. Must not: Spark, brokers, and any way to change the store.
"""
