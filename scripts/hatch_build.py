"""Says so when a wheel is built without the web console: `pip install .` would succeed all the same."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ConsoleHook(BuildHookInterface):
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Before a wheel or a source distribution is built; an editable installation is for developers."""
        del build_data
        page = Path(self.root) / "src" / "millstream" / "console" / "static" / "index.html"
        if version != "editable" and not page.is_file():
            self.app.display_warning(
                "the web console is not in this package, because it was not built; run `make console` before"
            )
