"""One HTTP/1.1 server for everything: health and metrics, the query API, the console's pages, the gateway.

`messages.py` has what handlers get and return, `routes.py` finds a handler, `access.py` checks Host, Origin and
tokens, `connection.py` turns bytes into requests and answers into bytes, `server.py` listens, limits and drains.
`node_routes.py` and `pages.py` are routes that several users share. A handler sees a request and returns an answer;
it never sees the connection. Imports nothing above `observability`.
"""
