"""Puts the web console into wheels and source distributions: builds it where Node can be had, and says so where not."""

import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ConsoleHook(BuildHookInterface):
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Before anything is packed. An editable installation is for developers, who run `make console`."""
        del build_data
        if version == "editable":
            return
        sys.path.insert(0, str(Path(self.root) / "scripts"))
        try:
            import build_console
        finally:
            sys.path.pop(0)
        if build_console.is_current():
            return
        try:
            build_console.build()
        except (build_console.CannotBuild, subprocess.CalledProcessError, OSError) as error:
            kept = "an older one is in it" if build_console.PAGE.is_file() else "this package has none"
            self.app.display_warning(f"the web console was not built: {error}; {kept}")
