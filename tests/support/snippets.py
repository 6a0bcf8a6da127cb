"""The code of documents, as a reader would copy it: blocks, their commands, and what the document says about them.

A comment before a block tells what a test needs to know and a reader does not see:

    <!-- not run: REASON -->              nothing of the block is run, only its options are checked
    <!-- not run "COMMAND": REASON -->    nor is the command that begins so
    <!-- before: NAME -->                 what the block takes as given, see tests/docs/preludes.py
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(r"((?:^<!--[^\n]*-->\n)*)^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_NOT_RUN = re.compile(r'<!-- not run(?: "(.+?)")?: (.+?) -->')
_BEFORE = re.compile(r"<!-- before: (.+?) -->")
_QUOTED = re.compile(r"`(millstream [a-z][^`\n]*)`")

LANGUAGES = {"console", "python", "yaml", "text"}


@dataclass(frozen=True, slots=True)
class Block:
    document: Path
    line: int
    language: str
    code: str
    not_run: tuple[tuple[str, str], ...]
    """Beginnings of commands, with the reason; an empty one stands for all."""
    before: str | None

    @property
    def place(self) -> str:
        return f"{self.document.name}:{self.line}"

    @property
    def commands(self) -> list[str]:
        """Without their prompts and comments; other lines are what they print."""
        lines = re.sub(r"\\\n\s*", "", self.code).splitlines()
        return [_without_comment(line[2:]) for line in lines if line.startswith("$ ")]

    def is_run(self, command: str = "") -> bool:
        return not any(not start or (command and command.startswith(start)) for start, _ in self.not_run)


def blocks_of(document: Path) -> list[Block]:
    text = document.read_text()
    return [
        Block(
            document, text[: match.start(2)].count("\n") + 1, match[2], match[3], tuple(_NOT_RUN.findall(match[1])),
            found[1] if (found := _BEFORE.search(match[1])) else None,
        )
        for match in _BLOCK.finditer(text)
    ]  # fmt: skip


def quoted_commands(document: Path) -> Iterator[str]:
    """Commands within sentences and tables."""
    for line in _BLOCK.sub("", document.read_text()).splitlines():
        yield from _QUOTED.findall(line)


def millstream_words(command: str) -> Iterator[list[str]]:
    """The words of each call of `millstream` in a shell's line."""
    for part in re.split(r"[|;]|&&|&\s*$", command):
        words = shlex.split(part, comments=True)
        for place, word in enumerate(words):
            if word == "millstream" or word.endswith("/millstream"):
                yield words[place + 1 :]
                break


def _without_comment(line: str) -> str:
    return re.sub(r"\s+#\s.*$", "", line).rstrip()
