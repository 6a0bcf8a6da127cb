"""What a type checker knows of messages."""

import subprocess
import sys
from pathlib import Path

_PROGRAM = """
from typing import assert_type

from millstream.client import STRING, Consumer, ConsumerConfig, Message, TopicPartition

plain = Consumer("localhost:9092")
assert_type(plain.poll(), list[Message[bytes, bytes]])
texts = Consumer("localhost:9092", group_id="g", key_deserializer=int, value_deserializer=STRING)
for message in texts:
    assert_type(message.key, int | None)
    assert_type(message.value, str | None)
    assert_type(message["value"], str | None)
    assert_type(message["offset"], int)
    assert_type(message["topic"], str)
assert_type(ConsumerConfig(bootstrap_servers="x", value_deserializer=STRING), ConsumerConfig[bytes, str])
assert_type(plain.assignment(), set[TopicPartition])
"""


def test_messages_have_the_types_that_their_deserializers_return(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)

    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(program)],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )

    assert checked.returncode == 0, checked.stdout + checked.stderr
