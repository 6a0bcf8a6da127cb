"""The query API: HTTP in front of a store, for people, programs and the console.

Lives here: the application (`app.py`) and its server (`server.py`), parameters checked before they are used
(`parameters.py`), questions to the store (`handlers.py`) and answers in JSON (`answers.py`), the OpenAPI document
(`openapi.py`, `schemas.py`) and the documentation page (`static/`). May come in: a `StoreReader`, the status file
of the job, a directory with the console's files. Must not: Spark, brokers, and any way to change the store.
"""
