"""Backups of real nodes, made and restored with the command as a user does."""

import json
from pathlib import Path
from typing import Any

from support.cli import Cli
from support.node import NodeProcess


class Backups:
    """A folder of backups of one node."""

    def __init__(self, node: NodeProcess, folder: Path) -> None:
        self.node = node
        self.folder = folder
        self.cli = Cli(node.bootstrap)

    def create(self, *arguments: str) -> Any:
        return self.cli.json("backup", "create", str(self.folder), *arguments)

    def list(self, *arguments: str) -> Any:
        return self.cli.json("backup", "list", str(self.folder), *arguments)

    def files(self) -> dict[Path, bytes]:
        """The copied batches by file."""
        return {path: path.read_bytes() for path in self.folder.glob("segments/*/*/*")}

    def restore(self, directory: Path, *arguments: str) -> tuple[NodeProcess, dict[str, Any]]:
        """A node over the restored data, not started."""
        directory.mkdir()
        restored = NodeProcess(directory, settings=self.node_settings)
        output = self.cli.ok(
            "backup", "restore", str(self.folder), "--data", str(restored.data_dir), "--json", *arguments
        )
        return restored, json.loads(output)

    @property
    def node_settings(self) -> dict[str, str]:
        return {"storage.retention_check_interval": "30d"}


def log_bytes(node: NodeProcess, topic: str, partition: int = 0) -> bytes:
    """All batches of a partition as they stand on the node's disk."""
    return b"".join(path.read_bytes() for path in sorted(node.partition_dir(topic, partition).glob("*.log")))
