"""Runs a story: commands of named clients, and what the coordinator wrote and answered.

# comment
a: join g topics=orders        a client's request; it remembers its member id, generation and epoch
after 3s                       time passes
----
a <- joined ...                answers, in order
log: ...                       records that went to the log
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

from scenario.harness import Harness
from scenario.story_commands import COMMANDS
from scenario.story_output import answer_line, record_line

_DURATION_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass
class Client:
    """What a real client would remember."""

    name: str
    member_id: str = ""
    generation: int = -1
    epoch: int = 0
    instance_id: str | None = None
    topics: tuple[str, ...] = ()
    assigned: dict[str, tuple[int, ...]] = field(default_factory=dict)


class Story:
    def __init__(self) -> None:
        self.harness = Harness()
        self.clients: dict[str, Client] = {}
        self._waiting: dict[int, Client] = {}
        self._logged = 0

    def run(self, command: str) -> list[str]:
        words = command.split()
        client = None
        if words[0].endswith(":"):
            name = words.pop(0)[:-1]
            client = self.clients.setdefault(name, Client(name))
        options = dict(word.split("=", 1) for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        output: list[str] = []
        if client is not None:
            token = self.harness.submit(COMMANDS[plain[0]](client, plain[1:], options, self.harness.topics))
            self._waiting[token] = client
        else:
            output += self._environment(plain, options)
        output += self._answers()
        if client is not None and token in self._waiting:
            output.append(f"{client.name} waits")
        return output + self._records()

    def _environment(self, words: list[str], options: dict[str, str]) -> list[str]:
        harness = self.harness
        if words[0] == "after":
            harness.advance(duration_ms(words[1]))
        elif words[0] == "topic":
            harness.set_topic(words[1], int(words[2]))
        elif words[0] == "delete-topic":
            harness.delete_topic(words[1])
        elif words[0] == "restart":
            self._waiting.clear()
            if "compacted" in words:
                harness.compact()
                self._logged = len(harness.log)
            harness.restart()
        elif words[0] == "settings":
            changes = {key: _setting(harness.settings, key, value) for key, value in options.items()}
            harness.change_settings(**changes)
        else:
            raise ValueError(f"unknown command {words[0]!r}")
        return []

    def _answers(self) -> list[str]:
        lines = []
        for token in list(self.harness.answers):
            answer = self.harness.answers.pop(token)
            client = self._waiting.pop(token, None)
            if client is not None:
                lines.append(f"{client.name} <- {answer_line(client, answer, self.harness.topics)}")
        return lines

    def _records(self) -> list[str]:
        fresh = self.harness.log[self._logged :]
        self._logged = len(self.harness.log)
        decoded = [self.harness.machine.decode(key, value) for key, value in fresh]
        return [f"log: {record_line(record, self.harness.topics)}" for record in decoded if record]


def duration_ms(text: str) -> int:
    matched = re.fullmatch(r"(\d+)(ms|s|m|h|d)", text)
    assert matched, f"{text!r} is no duration"
    return int(matched[1]) * _DURATION_MS[matched[2]]


def _setting(settings: object, name: str, text: str) -> object:
    current = getattr(settings, name)
    if isinstance(current, int):
        return int(text)
    if isinstance(current, tuple):
        return tuple(text.split(","))
    return type(current)(text)


def play(path: Path) -> str:
    """The file as it reads with what really happened."""
    story = Story()
    lines: list[str] = []
    expecting = False
    commands: list[str] = []
    for line in [*path.read_text().splitlines(), ""]:
        if expecting:
            expecting = line.strip() != ""
            if not expecting:
                lines.append("")
            continue
        if line.strip() == "----":
            output = [produced for command in commands for produced in story.run(command)]
            lines += ["----", *(output or ["ok"])]
            commands, expecting = [], True
            continue
        lines.append(line)
        if line.strip() and not line.startswith("#"):
            commands.append(line)
    assert not commands, f"commands without ---- at the end of {path.name}"
    return "\n".join(lines).rstrip() + "\n"
