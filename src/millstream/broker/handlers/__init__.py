"""The clients' APIs: one file for each, or one for several of the same resource. Those of nodes are in `peers/apis.py`.

A handler is a function `handle(*collaborators, request, call)` (named as its API where a file has several), or a class
made of its collaborators with a method `handle(request, call)`; `api/table.py` says which, `wiring.py` gives the
collaborators. It returns its answer, a coroutine of the answer, or LATER when it has taken a place for the reply with
`call.reply_later()`. It never sees a socket or the node. A file opens with its APIs, their versions, and what is not
done.
"""
