"""With a rule of storage broken, the story that belongs to it goes wrong; with the rule it does not."""

import pytest

from millstream.protocol.errors import KafkaError
from support.storage_rules import RULES


@pytest.mark.parametrize("name", RULES)
def test_a_broken_rule_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    RULES[name].story()
    RULES[name].broken(monkeypatch)
    with pytest.raises((AssertionError, KafkaError, pytest.fail.Exception)):
        RULES[name].story()
