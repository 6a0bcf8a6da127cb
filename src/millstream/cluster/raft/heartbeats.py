"""A leader's sign of life, which also carries the commit index and the question of the current read round."""

from millstream.cluster.raft.messages import Heartbeat
from millstream.cluster.raft.state import RaftState


def send_heartbeats(raft: RaftState) -> None:
    leading = raft.leading
    leading.heartbeat_elapsed = 0
    for replica, progress in leading.progress.items():
        # A follower may hold other entries beyond the match, so it must not commit there.
        commit = min(progress.match_index, raft.log.commit_index)
        raft.send(Heartbeat(raft.key, replica, raft.term, commit, leading.read_round))
