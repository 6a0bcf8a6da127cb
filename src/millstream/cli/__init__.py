"""The `millstream` command: one file per command group, nothing but parsing, calling and showing.

The top layer: may import every other package, and no package imports this one. Nothing heavy is imported at module
level outside a command's own file, so that `millstream serve` starts fast.
"""
