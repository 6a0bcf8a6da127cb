"""The clients' APIs, one file each, named as the API; those of nodes among themselves are in `peers/apis.py`.

A handler is a function `handle(*collaborators, request, call)`, or a class made of its collaborators with a method
`handle(request, call)`; `api/table.py` says which, `wiring.py` gives the collaborators. It returns its answer, a
coroutine that has it, or LATER when it has asked `call.reply_later()` for a place to answer in. It never sees a socket
or the node. A file opens with the versions that are served and what is not done.
"""
