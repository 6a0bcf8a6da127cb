"""Broken requests in front of the decoders: a request comes out or MalformedRequest, and it never takes much memory."""

import tracemalloc

import pytest

from millstream.protocol.api import FETCH, METADATA, PRODUCE, Api
from millstream.protocol.codec import decode_request
from millstream.protocol.errors import KafkaError
from millstream.protocol.fetch import decode_fetch
from millstream.protocol.metadata import decode_metadata
from millstream.protocol.produce import decode_produce
from support.fuzzing import ROUNDS, chance_for, every_version, mutated, valid_body

CASES = 60
BY_HAND = {PRODUCE: decode_produce, FETCH: decode_fetch, METADATA: decode_metadata}
# A request of a few hundred bytes must not cost more than this, whatever it claims.
MOST_MEMORY = 4 << 20


def decode(api: Api, version: int, body: bytes) -> bool:
    """Whether the body was taken for a request."""
    view = memoryview(body)
    try:
        if api.key in BY_HAND:
            BY_HAND[api.key](view, 0, version)
        else:
            decode_request(api, version, view)
    except KafkaError:
        return False
    return True


@pytest.mark.parametrize(
    ("api", "version"), list(every_version()), ids=lambda each: getattr(each, "name", f"v{each}")
)
def test_only_requests_and_malformed_ones_come_out(api: Api, version: int) -> None:
    chance = chance_for(api, version)
    assert decode(api, version, valid_body(chance, api, version)), "what is mutated is valid to begin with"
    for _ in range(CASES * ROUNDS):
        body = mutated(chance, valid_body(chance, api, version))
        decode(api, version, body)
        decode(api, version, chance.randbytes(chance.randrange(64)))


def claims(api: Api, version: int) -> list[bytes]:
    chance = chance_for(api, version)
    broken = [mutated(chance, valid_body(chance, api, version)) for _ in range(6)]
    return [*broken, b"\x7f\xff\xff\xff" * 10, b"\xff\xff\xff\xff\x07" * 10]


def test_claims_cost_no_memory() -> None:
    # Made before memory is watched, which takes several times as long.
    bodies = {each: claims(*each) for each in every_version()}
    tracemalloc.start()
    try:
        for (api, version), broken in bodies.items():
            for body in broken:
                tracemalloc.reset_peak()
                before = tracemalloc.get_traced_memory()[0]
                decode(api, version, body)
                assert tracemalloc.get_traced_memory()[1] - before < MOST_MEMORY, (
                    f"{api.name} v{version}: {body.hex()}"
                )
    finally:
        tracemalloc.stop()
