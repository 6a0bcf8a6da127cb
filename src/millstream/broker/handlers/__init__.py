"""One file per API, named as the API.

A handler is either `handle(broker, request, context)`, sync or async, which takes and returns kio's newest classes; or,
where every microsecond counts, `serve(broker, context, request, position)`, which reads the bytes and replies itself.
"""
