"""The web console: a page built from `console/` at the repository's top, shipped inside the package.

Holds the built files (`static/`, made by scripts/build_console.py) and says where they are. Whoever serves HTTP
serves them. Imports no other room.
"""

from millstream.console.assets import static_dir

__all__ = ["static_dir"]
