"""/produce as its contract has it, and what it does more."""

import json
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import httpx
import pytest

from millstream.client import Consumer
from millstream.doors import Message
from millstream.gateway.bodies import FRAMES, NDJSON
from millstream.protocol.message_frame import decode_frame
from millstream.testing import EmbeddedBroker
from support.frames import frame_of


def records(gateway: httpx.Client, topic: str, partition: int, **query: object) -> list[dict[str, object]]:
    answer = gateway.get(f"/topics/{topic}/partitions/{partition}/records", params={"limit": 1000, **query})
    assert answer.status_code == 200, answer.text
    return answer.json()["records"]  # type: ignore[no-any-return]


def test_a_message_is_stored_and_its_place_and_durability_told(gateway: httpx.Client) -> None:
    answer = gateway.post("/produce?topic=telemetry&partition=1", json={"payload": "hello"})
    told = answer.json()
    assert (answer.status_code, told["topic"], told["partition"], told["durability"]) == (
        200,
        "telemetry",
        1,
        "disk",
    )
    assert told["id"] == f"telemetry:1:{told['offset']}"
    (record,) = records(gateway, "telemetry", 1, offset=told["offset"])
    assert (record["id"], record["payload"], record["key"]) == (told["id"], "hello", None)


def test_what_curl_sends_without_a_content_type_is_read_too(
    node: EmbeddedBroker, gateway: httpx.Client
) -> None:
    url = f"{node.http_url}/produce?topic=by-curl&partition=0"
    for body in ('{"payload": "wrapped"}', "as it is"):
        subprocess.run(["curl", "-sSf", url, "-d", body], check=True, capture_output=True, timeout=60)
    assert [each["payload"] for each in records(gateway, "by-curl", 0)] == ["wrapped", "as it is"]


def test_a_key_goes_where_kafkas_clients_put_it(node: EmbeddedBroker, gateway: httpx.Client) -> None:
    told = gateway.post("/produce?topic=keyed&key=user-1", json={"payload": "x"}).json()
    assert told["partition"] == 8  # murmur2, twelve partitions
    assert (
        gateway.post("/produce?topic=keyed", json={"payload": "x", "key": "user-1"}).json()["partition"] == 8
    )
    with Consumer(node.bootstrap_servers, group_id="keys", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["keyed"])
        message = consumer.poll(60)[0]
        assert (message.partition, message.key) == (8, b"user-1")


def test_messages_without_a_key_go_round_the_partitions(gateway: httpx.Client) -> None:
    places = [
        gateway.post("/produce?topic=round", json={"payload": "x"}).json()["partition"] for _ in range(12)
    ]
    assert sorted(places) == list(range(12))


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/produce", 400, "topic required"),
        ("/produce?topic=", 400, "topic required"),
        ("/produce?topic=telemetry&partition=x", 400, "invalid partition"),
        ("/produce?topic=telemetry&partition=-1", 400, "invalid partition"),
        ("/produce?topic=telemetry&partition=3", 400, "invalid partition"),
        ("/produce?topic=telemetry&partition=99999999999", 400, "invalid partition"),
        ("/produce?topic=a%20b", 400, "unknown topic"),
        ("/produce?topic=__consumer_offsets", 400, "unknown topic"),
        ("/produce?topic=%0d%0aset-cookie:x", 400, "unknown topic"),
    ],
)
def test_the_contracts_refusals(gateway: httpx.Client, path: str, status: int, text: str) -> None:
    answer = gateway.post(path, json={"payload": "x"})
    assert (answer.status_code, answer.text) == (status, text)
    as_json = gateway.post(path, json={"payload": "x"}, headers={"accept": "application/json"})
    assert (as_json.status_code, as_json.json()) == (status, {"error": text})


def test_other_methods_and_bad_queries_are_refused(gateway: httpx.Client) -> None:
    assert gateway.get("/produce?topic=telemetry").status_code == 405
    assert gateway.post("/produce?topic=%ff", content=b"x").status_code == 400
    assert gateway.post("/produce?" + "&".join(f"a{n}=1" for n in range(50)), content=b"x").status_code == 400


def test_bodies_that_are_too_much_are_told_what_is_wrong(gateway: httpx.Client) -> None:
    deep = b'{"payload": ' + b"[" * 5_000
    for path in ("/produce?topic=telemetry", "/ack?group=g"):
        answer = gateway.post(path, content=deep)
        assert (answer.status_code, "nested too deeply" in answer.text) == (400, True), path
    late = gateway.post("/produce?topic=telemetry", json={"payload": "x", "timestamp": 2**64})
    assert (late.status_code, "$.timestamp" in late.text) == (400, True)
    some = [{"payload": "x"}, {"payload": "y", "partition": 99}]
    placed = gateway.post("/produce?topic=telemetry", json=some)
    assert placed.text == "invalid partition: message 1 asks for 99"
    assert gateway.get("/health").json()["brokers_healthy"] == 1


def test_a_page_of_another_site_may_neither_send_nor_take(gateway: httpx.Client) -> None:
    headers = {"origin": "http://evil.example"}
    assert gateway.post("/produce?topic=telemetry", content=b"x", headers=headers).status_code == 403
    assert gateway.get("/consume?topic=telemetry&group=g", headers=headers).status_code == 403
    assert gateway.get("/topics", headers=headers).status_code == 200


def test_a_payload_of_a_mebibyte_passes(gateway: httpx.Client) -> None:
    payload = "\u00fc" * (512 * 1024)
    told = gateway.post("/produce?topic=large&partition=0", json={"payload": payload}).json()
    assert records(gateway, "large", 0, offset=told["offset"])[0]["payload"] == payload


def test_what_is_too_large_is_413(gateway: httpx.Client) -> None:
    assert gateway.post("/produce?topic=large", content=b"x" * (3 << 20)).status_code == 413
    assert gateway.post("/produce?topic=large", content=b"x" * (17 << 20)).status_code == 413


def test_bytes_that_are_no_text_come_back_as_they_were(gateway: httpx.Client) -> None:
    gateway.post("/produce?topic=bytes&partition=0", content=b"\xff\x00\xfe")
    (record,) = records(gateway, "bytes", 0)
    assert (record["payload"], record["encoding"]) == ("/wD+", "base64")


def test_batches_keep_their_order_and_have_an_id_for_each(gateway: httpx.Client) -> None:
    some = [{"payload": f"m{number}"} for number in range(2_000)]
    told = gateway.post("/produce?topic=batch&partition=0", json=some).json()
    assert told["ids"] == [f"batch:0:{number}" for number in range(2_000)]
    assert (told["count"], told["durability"]) == (2_000, "disk")
    lines = "\n".join(json.dumps(each) for each in some)
    answer = gateway.post("/produce?topic=batch&partition=1", content=lines, headers={"content-type": NDJSON})
    assert answer.json()["ids"][-1] == "batch:1:1999"
    assert [each["payload"] for each in records(gateway, "batch", 1)] == [
        f"m{number}" for number in range(1_000)
    ]


def test_a_batch_may_be_larger_than_one_append_of_its_topic(gateway: httpx.Client) -> None:
    some = [{"payload": "x" * 100_000}] * 50
    assert len(gateway.post("/produce?topic=wide&partition=0", json=some).json()["ids"]) == 50


def test_a_batch_goes_by_its_keys(gateway: httpx.Client) -> None:
    some = [{"payload": "x", "key": f"user-{number % 5}"} for number in range(50)]
    ids = gateway.post("/produce?topic=batch-keys", json=some).json()["ids"]
    for key in range(5):
        assert len({each.rsplit(":", 1)[0] for each in ids[key::5]}) == 1


def test_frames_go_in_and_come_out_with_their_checksums(gateway: httpx.Client) -> None:
    sent = [Message(b"k", b"v%d" % number, (("h", b"1"),), 1_700_000_000_000 + number) for number in range(3)]
    body = b"".join(map(frame_of, sent))
    answer = gateway.post("/produce?topic=frames&partition=0", content=body, headers={"content-type": FRAMES})
    assert answer.json()["count"] == 3
    out = gateway.get("/topics/frames/partitions/0/records", headers={"accept": FRAMES})
    assert (out.headers["content-type"], out.headers["x-next-offset"]) == (FRAMES, "3")
    data, frames = out.content, []
    while data:
        size = 4 + int.from_bytes(data[:4], "big")
        frames.append(decode_frame(data[:size]))
        data = data[size:]
    assert [(each.key, each.value, each.timestamp_ms) for each in frames] == [
        (each.key, each.value, each.timestamp_ms) for each in sent
    ]
    broken = body[:-1] + bytes([body[-1] ^ 1])
    refused = gateway.post(
        "/produce?topic=frames&partition=0", content=broken, headers={"content-type": FRAMES}
    )
    assert (refused.status_code, "checksum" in refused.text) == (400, True)


def test_many_at_once_are_all_stored_once(node: EmbeddedBroker, gateway: httpx.Client) -> None:
    def send(number: int) -> str:
        return str(client.post("/produce?topic=many", json={"payload": f"m{number}"}).json()["id"])

    with httpx.Client(base_url=node.http_url, timeout=90) as client, ThreadPoolExecutor(16) as pool:
        ids = [*pool.map(send, range(300))]
    stored = {each["payload"] for partition in range(12) for each in records(gateway, "many", partition)}
    assert (len({*ids}), stored) == (300, {f"m{number}" for number in range(300)})


def test_a_client_that_goes_in_the_middle_of_its_body_leaves_nothing(
    node: EmbeddedBroker, gateway: httpx.Client
) -> None:
    address = urlsplit(node.http_url)
    gateway.post("/admin/topics", json={"name": "cut", "partitions": 1})
    with socket.create_connection((address.hostname, address.port), timeout=60) as raw:
        raw.sendall(b"POST /produce?topic=cut HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf of it")
    assert gateway.post("/produce?topic=cut", content=b"whole").json()["offset"] == 0


def test_the_log_is_read_from_where_one_asks(gateway: httpx.Client) -> None:
    for number in range(5):
        gateway.post("/produce?topic=log&partition=2", content=f"m{number}".encode())
    path = "/topics/log/partitions/2/records"
    page = gateway.get(path, params={"offset": 1, "limit": 2}).json()
    assert ([each["payload"] for each in page["records"]], page["next_offset"]) == (["m1", "m2"], 3)
    end = gateway.get(path, params={"offset": "latest"}).json()
    assert (end["records"], end["next_offset"], end["high_watermark"]) == ([], 5, 5)
    for query, status in ({"offset": "x"}, 400), ({"offset": 9}, 416), ({"limit": 0}, 400):
        assert gateway.get(path, params=query).status_code == status
    assert gateway.get("/topics/log/partitions/99/records").status_code == 404
    assert gateway.get("/topics/none/partitions/0/records").status_code == 404
