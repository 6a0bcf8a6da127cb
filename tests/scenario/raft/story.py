"""Runs a story about a quorum and tells what came of it.

voters 1 2 3                        the first membership; `joining 4` is a node that has nothing yet
logs 1=1,1,2 2=1,1                  the same with terms of entries, the first of which is where the quorum began
1: timeout                          the leader has been silent for too long, as node 1 sees it
1: propose x      1: read 7      1: transfer 2      1: change promote 4      1: snapshot      1: heartbeat
1: disk slow      1: sync           the disk takes its time; what it was given is written now
1: restart                          whatever was not written is lost
deliver           deliver 1>2 2>1   messages and all that follows from them; `loud` shows them, `one` stops after one
                                    message, `until-leader` when a node leads
cut 1>2    isolate 1    heal    lose    messages that are lost: on the way, or all that are on the wire
keep 1>2   late                     copies of what is on the wire now arrive once more, later
tick 5                              time passes for everyone, messages are delivered in between
show                                roles, terms and logs; what is committed stands before the bar
"""

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

from msgspec.structs import replace

from millstream.cluster.raft.errors import RaftError
from millstream.cluster.raft.membership import Change, ChangeKind
from millstream.cluster.raft.messages import Message
from millstream.cluster.raft.state import Role
from scenario.raft.message_lines import message_line
from scenario.raft.quorum_box import BoxNode, QuorumBox, key_of, path_of

_CHANGES = {"add-learner": ChangeKind.ADD_LEARNER, "promote": ChangeKind.PROMOTE, "remove": ChangeKind.REMOVE}


class Story:
    def __init__(self) -> None:
        self.box = QuorumBox()
        self._roles: dict[int, str] = {}
        self._kept: list[Message] = []

    def run(self, command: str) -> list[str]:
        words = command.split()
        if words[0].endswith(":"):
            node = self.box.nodes[int(words.pop(0)[:-1])]
            try:
                _NODE_COMMANDS[words[0]](self, node, words[1:])
            except RaftError as error:
                self.box.news.append(f"{node.node_id} refuses: {error}")
        else:
            _COMMANDS[words[0]](self, words[1:])
        self.box.settle()
        return self._news()

    def _news(self) -> list[str]:
        news, self.box.news = self.box.news, []
        return news + self._role_news()

    def _role_news(self) -> list[str]:
        lines = []
        for node_id, node in self.box.nodes.items():
            state = node.raft.state
            text = f"{node_id} is {state.role.value} in term {state.term}"
            if state.role is Role.LEADER:
                text = f"{node_id} leads term {state.term}"
            elif state.role is Role.FOLLOWER and state.leader is not None:
                text = f"{node_id} follows {state.leader.node_id} in term {state.term}"
            if self._roles.get(node_id, text) != text:
                lines.append(text)
            self._roles[node_id] = text
        return lines

    # The world

    def voters(self, words: list[str]) -> None:
        for word in words:
            self.box.add(int(word), tuple(map(int, words)))

    def logs(self, words: list[str]) -> None:
        logs = dict(word.split("=") for word in words)
        for node_id, text in logs.items():
            terms, _, term = text.partition("@")
            voters = tuple(map(int, logs))
            self.box.add(int(node_id), voters, tuple(map(int, terms.split(","))), int(term or 0))

    def joining(self, words: list[str]) -> None:
        self.box.add(int(words[0]), ())

    def settings(self, words: list[str]) -> None:
        changes = dict(word.split("=") for word in words)
        self.box.settings = replace(
            self.box.settings, **{name: int(value) for name, value in changes.items()}
        )

    def deliver(self, words: list[str]) -> None:
        paths = {_path(word) for word in words if ">" in word}
        for _ in range(1 if "one" in words else 2000):
            message = self.box.take_message(paths or None)
            if message is None:
                return
            arrives = self.box.arrives(message)
            if "loud" in words:
                self.box.news.append(f"{message_line(message)}{'' if arrives else '  lost'}")
            if arrives:
                self.box.hand_over(message)
            news = self._role_news()
            self.box.news += news
            if "until-leader" in words and any(" leads " in line for line in news):
                return

    def cut(self, words: list[str]) -> None:
        self.box.cuts |= {_path(word) for word in words}

    def isolate(self, words: list[str]) -> None:
        for alone in map(int, words):
            for other in self.box.nodes:
                if other != alone:
                    self.box.cuts |= {(alone, other), (other, alone)}

    def heal(self, _words: list[str]) -> None:
        self.box.cuts.clear()

    def lose(self, _words: list[str]) -> None:
        self.box.wire.clear()

    def keep(self, words: list[str]) -> None:
        self._kept = [m for m in self.box.wire if path_of(m) in {_path(word) for word in words}]

    def late(self, _words: list[str]) -> None:
        self.box.wire += self._kept

    def tick(self, words: list[str]) -> None:
        for _ in range(int(words[0])):
            for node in self.box.nodes.values():
                node.raft.tick()
            self.deliver([])

    def show(self, _words: list[str]) -> None:
        for node_id, node in self.box.nodes.items():
            state = node.raft.state
            log = state.log
            terms = [str(log.term_at(index)) for index in range(log.first_index - 1, log.last_index + 1)]
            committed = log.commit_index - log.first_index + 2
            text = " ".join([*terms[:committed], "|", *terms[committed:]]).strip()
            role = "leader" if state.role is Role.LEADER else state.role.value
            self.box.news.append(f"{node_id} {role} term {state.term} log from {log.first_index - 1}: {text}")

    # One node

    def timeout(self, node: BoxNode, _words: list[str]) -> None:
        node.raft.state.elapsed = node.raft.state.timeout - 1
        node.raft.tick()

    def silence(self, node: BoxNode, _words: list[str]) -> None:
        node.raft.state.elapsed = node.raft.state.settings.election_ticks

    def node_tick(self, node: BoxNode, words: list[str]) -> None:
        for _ in range(int(words[0]) if words else 1):
            node.raft.tick()

    def propose(self, node: BoxNode, words: list[str]) -> None:
        for word in words:
            node.raft.propose(word.encode())

    def read(self, node: BoxNode, words: list[str]) -> None:
        node.raft.read_index(UUID(int=int(words[0])))

    def transfer(self, node: BoxNode, words: list[str]) -> None:
        node.raft.transfer_leadership(key_of(int(words[0])))

    def change(self, node: BoxNode, words: list[str]) -> None:
        member = key_of(int(words[1]))
        if "new-directory" in words:
            member = member._replace(directory_id=UUID(int=900 + member.node_id))
        node.raft.propose_change(Change(_CHANGES[words[0]], member))

    def snapshot(self, node: BoxNode, _words: list[str]) -> None:
        self.box.news.append(f"{node.node_id} snapshots at {self.box.snapshot(node).index}")

    def disk(self, node: BoxNode, words: list[str]) -> None:
        node.disk.is_slow = words == ["slow"]
        if not node.disk.is_slow:
            self.box.sync(node)

    def sync(self, node: BoxNode, _words: list[str]) -> None:
        self.box.sync(node)

    def restart(self, node: BoxNode, _words: list[str]) -> None:
        self.box.restart(node.node_id)

    def state(self, node: BoxNode, _words: list[str]) -> None:
        self.box.news.append(f"{node.node_id} has {' '.join(node.machine) or 'nothing'}")

    def followers(self, node: BoxNode, _words: list[str]) -> None:
        for each in node.raft.status().followers:
            self.box.news.append(f"{each.member.node_id} {each.pace.value} match={each.match_index}")

    def members(self, node: BoxNode, _words: list[str]) -> None:
        membership = node.raft.state.log.membership
        voters = " ".join(str(key.node_id) for key in membership.voters)
        learners = " ".join(str(key.node_id) for key in membership.learners)
        self.box.news.append(f"{node.node_id} knows voters {voters}, learners {learners or 'none'}")


def _path(word: str) -> tuple[int, int]:
    sender, _, receiver = word.partition(">")
    return int(sender), int(receiver)


_COMMANDS: dict[str, Callable[[Story, list[str]], None]] = {
    name: getattr(Story, name)
    for name in (
        *("voters", "logs", "joining", "settings", "deliver", "cut", "isolate"),
        *("heal", "lose", "keep", "late", "tick", "show"),
    )
}
_NODE_COMMANDS: dict[str, Callable[[Story, BoxNode, list[str]], None]] = {
    "tick": Story.node_tick,
    "heartbeat": Story.node_tick,
    **{
        name: getattr(Story, name)
        for name in (
            *("timeout", "silence", "propose", "read", "transfer", "change", "snapshot", "disk"),
            *("sync", "restart", "state", "followers", "members"),
        )
    },
}


def play(path: Path) -> str:
    """The file as it reads with what really happened."""
    story = Story()
    lines: list[str] = []
    commands: list[str] = []
    is_ending = False
    for line in [*path.read_text().splitlines(), ""]:
        if is_ending:
            is_ending = line.strip() != ""
            lines += [] if is_ending else [""]
        elif line.strip() == "----":
            lines += ["----", *([news for command in commands for news in story.run(command)] or ["ok"])]
            commands, is_ending = [], True
        else:
            lines.append(line)
            commands += [line] if line.strip() and not line.startswith("#") else []
    assert not commands, f"commands without ---- at the end of {path.name}"
    return "\n".join(lines).rstrip() + "\n"
