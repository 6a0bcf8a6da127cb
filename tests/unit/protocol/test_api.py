"""The table of APIs against kio, which is generated from Kafka's own message definitions."""

import pytest

from millstream.protocol.api import APIS, NEVER_FLEXIBLE, PRODUCE, PRODUCE_SERVED_FROM, Api
from millstream.protocol.codec import message_class

# What must be served at least for the clients that were measured: key, first and last version.
NEEDED = {
    0: (0, 13), 1: (4, 18), 2: (1, 11), 3: (0, 13), 18: (0, 4), 19: (2, 7), 20: (1, 6), 21: (0, 2), 22: (0, 5),
    23: (2, 4), 32: (1, 4), 33: (0, 2), 37: (0, 3), 44: (0, 1), 60: (0, 2), 75: (0, 0),
}  # fmt: skip


def versions_in_kio(api: Api) -> range:
    first = PRODUCE_SERVED_FROM if api.key == PRODUCE else api.min_version
    return range(first, api.max_version + 1)


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_key_versions_and_encoding_are_those_of_the_message_definitions(api: Api) -> None:
    assert APIS[api.key] is api
    assert 0 <= api.min_version <= api.max_version
    for version in versions_in_kio(api):
        for kind in ("request", "response"):
            message = message_class(api.name, version, kind)
            assert message.__api_key__ == api.key
            assert message.__version__ == version
            assert message.__flexible__ == api.is_flexible(version), f"{kind} version {version}"


def test_versions_that_clients_need_are_served() -> None:
    for key, (first, last) in NEEDED.items():
        assert APIS[key].min_version <= first
        assert APIS[key].max_version >= last


def test_produce_is_advertised_from_zero_because_librdkafka_drops_codecs_otherwise() -> None:
    assert APIS[PRODUCE].min_version == 0
    assert PRODUCE_SERVED_FROM == 3


def test_an_api_without_flexible_versions_never_becomes_flexible() -> None:
    assert not Api(999, "x", 0, 5, NEVER_FLEXIBLE).is_flexible(5)
