"""From a request's bytes to its handler and back.

`table` has a row for each API: its handler, the permissions it needs, its quota, who is served it. `codecs` reads
requests and writes replies, `dispatch` is the way from one to the other, `call` is what a handler sees of it: who asks,
in which version, and how to answer later.
"""
