"""Every command and snippet of README and docs/ works as printed, or says beside itself why nobody runs it here."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from docs.following import NEEDS_SPARK, Reader
from docs.preludes import PYTHON, SHELL
from millstream.cli.app import COMMANDS, build_app
from millstream.runtime.ports import ReservedPorts
from support.node import NodeProcess
from support.snippets import LANGUAGES, Block, blocks_of, millstream_words, quoted_commands
from support.telemetry import csv_of_a_fleet

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([ROOT / "README.md", *ROOT.glob("docs/*.md"), ROOT / "console" / "README.md"])
BLOCKS = {document: blocks_of(document) for document in DOCUMENTS}
# Several nodes of their own, and many commands to each: run with what needs Spark.
LONG = {"CLUSTER.md"}


def is_long(block: Block) -> bool:
    return block.document.name in LONG or bool(NEEDS_SPARK.search(block.code))


def documents(*, long: bool) -> list[Path]:
    return [
        each
        for each in DOCUMENTS
        if any(is_long(block) is long for block in BLOCKS[each] if block.language != "text")
    ]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[NodeProcess, int]]:
    reserved = ReservedPorts()
    (port,) = reserved.ports
    settings = {"kafka.group.initial.rebalance.delay.ms": "0"}
    mqtt = ["--mqtt", f"127.0.0.1:{port}"]
    made = NodeProcess(tmp_path_factory.mktemp("docs"), mqtt, settings=settings).start()
    try:
        yield made, port
        made.stop()
    finally:
        made.close()


@pytest.fixture
def reader(node: tuple[NodeProcess, int], tmp_path: Path) -> Iterator[Reader]:
    (tmp_path / "dcgm.csv").write_text(csv_of_a_fleet(hosts=1, gpus=2, scrapes=2))
    made = Reader(tmp_path, *node)
    yield made
    made.close()


@pytest.mark.parametrize("document", documents(long=False), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_document_works_as_printed(reader: Reader, document: Path) -> None:
    for block in BLOCKS[document]:
        if not is_long(block):
            reader.read(block)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("document", documents(long=True), ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_document_says_of_spark_and_clusters_works_as_printed(reader: Reader, document: Path) -> None:
    for block in BLOCKS[document]:
        if is_long(block):
            reader.read(block)


def test_every_block_has_a_language_and_known_marks() -> None:
    for blocks in BLOCKS.values():
        for block in blocks:
            assert block.language in LANGUAGES, block.place
            assert block.before is None or block.before in {*PYTHON, *SHELL, "a store", "profiles"}, (
                block.place
            )
            assert block.language != "console" or block.commands, block.place
            for start, reason in block.not_run:
                assert len(reason) > 10, block.place
                assert not start or any(each.startswith(start) for each in block.commands), block.place


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_that_a_document_names_have_these_options(document: Path) -> None:
    """Also those that are not run, and those within sentences."""
    named = [command for block in BLOCKS[document] for command in block.commands]
    for command in [*named, *quoted_commands(document)]:
        for words in millstream_words(command):
            check_options(words, command)


def check_options(words: list[str], command: str) -> None:
    name = next((word for word in words if not word.startswith("-")), None)
    if name is None or not re.fullmatch(r"[a-z]+", name):
        return
    assert name in COMMANDS, command
    known = typer.main.get_command(build_app(name))
    rest = iter(words)
    for word in rest:
        if hasattr(known, "commands") and word in known.commands:
            known = known.commands[word]
        elif hasattr(known, "commands") and re.fullmatch(r"[a-z][a-z-]+", word):
            raise AssertionError(f"{command}: there is no {word}")
        elif re.match(r"--?[a-zA-Z]", word):
            options = {option for each in known.params for option in (*each.opts, *each.secondary_opts)}
            assert word.partition("=")[0] in {*options, "--help", "-h"}, f"{command}: there is no {word}"
