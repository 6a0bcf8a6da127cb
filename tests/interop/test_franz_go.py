"""franz-go's share consumer and librdkafka's in one group: each message goes to one of them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from millstream.client import QueueAdmin
from support.node import NodeProcess
from support.one_group import PrintingConsumer, build_franz, share_a_queue


def test_two_libraries_share_a_queue(
    broker: NodeProcess, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    program = build_franz(tmp_path)
    if program is None:
        pytest.skip("needs Go")
    topic = new_topic()
    group = f"{topic}-group"
    with QueueAdmin(broker.bootstrap) as admin:
        admin.alter_group_configs(group, {"share.auto.offset.reset": "earliest"})
    other = PrintingConsumer(str(program), broker.bootstrap, topic, group)
    try:
        share_a_queue(broker.bootstrap, topic, group, [other])
    finally:
        other.stop()
