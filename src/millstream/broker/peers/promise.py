"""Whom this node has promised to let found the cluster: to one founder, on disk before it is said."""

import msgspec

from millstream.broker.peers.errors import CannotJoin
from millstream.cluster.raft.membership import ReplicaKey
from millstream.runtime.disk import Disk

FILE = "founding-promise"

_decoder = msgspec.json.Decoder(ReplicaKey)


class Promise:
    """`to` is None until one was given. Once this node founds a cluster itself (`claim`) it gives none any more."""

    def __init__(self, disk: Disk, data_dir: str) -> None:
        self._disk = disk
        self._path = f"{data_dir}/{FILE}"
        self.to: ReplicaKey | None = None
        self.is_claimed = False
        if disk.exists(self._path):
            try:
                self.to = _decoder.decode(disk.read(self._path))
            except msgspec.MsgspecError as error:
                raise CannotJoin(
                    f"{self._path} cannot be read ({error}); it matters only until the cluster is founded: remove it if"
                    " that has happened, or empty --data"
                ) from error

    def claim(self, me: ReplicaKey) -> bool:
        """Whether this node may found now; then it promises nobody else from this moment on."""
        self.is_claimed = self.to in (None, me)
        return self.is_claimed

    def keep(self, founder: ReplicaKey) -> None:
        """Write it down; blocks, and belongs in a thread. `to` is set by the loop before."""
        self._disk.write_atomically(self._path, msgspec.json.encode(founder))
