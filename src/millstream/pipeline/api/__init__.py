"""The query API: HTTP in front of a store, for people, programs and the console.

Lives here: the routes (`app.py`) and their server (`server.py`), parameters checked before they are used
(`parameters.py`), questions to the store (`calls.py`), answers in JSON (`answers.py`) and the OpenAPI document
(`openapi.py`, `schemas.py`). May come in: a `StoreReader`, the status file
of the job, a directory with the console's files. Must not: Spark, brokers, and any way to change the store.
"""
