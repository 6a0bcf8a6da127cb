"""A real node in the test's process, and a folder for its backups on a disk that fails on command."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from millstream.backup.create import BackupMaker, Progress
from millstream.backup.folder import BackupFolder
from millstream.backup.manifest import BackupError, Manifest, Selection, segment_path
from millstream.backup.plan import Plan
from millstream.backup.restore import Restored, Restorer
from millstream.client.errors import ClientError
from millstream.client.wire.cluster import Cluster
from millstream.client.wire.properties import addresses
from millstream.client.wire.settings import ClusterSettings
from millstream.runtime.clock import SystemClock
from millstream.testing.disk import SimulatedDisk
from support.inprocess import InProcessNode, node_on
from support.raw_client import RawClient

FOLDER = "/backups/of/this"
DATA_DIR = "/restored"


@dataclass
class Workbench:
    node: InProcessNode
    client: RawClient
    disk: SimulatedDisk
    """Of the backups and of what is restored from them; the node has another one."""

    def create(
        self, *, segment_bytes: int = 1 << 20, notes: list[str] | None = None, patience_s: float = 60.0
    ) -> Manifest:
        settings = ClusterSettings(
            addresses(self.node.listen), asks_node_itself=True, api_timeout_s=patience_s
        )
        with Cluster(settings) as cluster:
            maker = BackupMaker(
                cluster,
                self.folder(),
                SystemClock(),
                "test",
                Progress(note=lambda text: notes.append(text) if notes is not None else None),
                segment_bytes,
            )
            try:
                manifest = maker.make("test", Selection())
            except (BackupError, ClientError):
                self.disk.restart()
                raise
            # The process ends with the command, and its lock with the process.
            self.disk.restart()
            return manifest

    def folder(self) -> BackupFolder:
        return BackupFolder(self.disk, FOLDER)

    def manifests(self) -> list[Manifest]:
        folder = self.folder()
        return [folder.read(each) for each in folder.backup_ids()]

    def check(self, manifest: Manifest) -> None:
        for each in manifest.files():
            for _ in self.folder().check(segment_path(*each), each[2].size_bytes, each[2].checksum):
                pass

    def restore(self, plan: Plan) -> Restored:
        return Restorer(self.folder(), self.disk, SystemClock(), DATA_DIR, 1).restore(plan)

    def unnamed(self) -> set[str]:
        """Files that no backup needs."""
        named = {f"{FOLDER}/{segment_path(*each)}" for one in self.manifests() for each in one.files()}
        return {path for path in self.disk.paths() if "/segments/" in path} - named


@pytest.fixture
def bench() -> Iterator[Workbench]:
    with node_on(SimulatedDisk()) as node, RawClient(node.listen) as client:
        yield Workbench(node, client, SimulatedDisk(seed=1))
