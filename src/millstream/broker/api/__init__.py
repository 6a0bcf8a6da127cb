"""From a request's bytes to its handler and back.

`table` has a row for each API: its handler, the permissions it needs, the listeners that serve it. `codecs` reads
requests and writes replies, `dispatch` takes a request through its handler to its reply, `call` is a request as its
handler sees it: who asks, in which version, and how to answer later.
"""
