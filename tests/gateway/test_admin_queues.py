"""/admin/queues: looking at queues, settings, purging, and dead letters back to where they came from."""

import httpx
import pytest

LETTERS = "dlq.jobs"


def take(gateway: httpx.Client, topic: str, group: str, count: int) -> list[str]:
    ids: list[str] = []
    while len(ids) < count:
        answer = gateway.get(
            "/consume", params={"topic": topic, "group": group}, headers={"accept": "application/json"}
        )
        ids += [each["id"] for each in answer.json()["messages"]]
    return ids


@pytest.fixture
def jobs(gateway: httpx.Client) -> str:
    gateway.post("/admin/topics", json={"name": "jobs", "partitions": 1})
    gateway.delete("/admin/queues/g/messages?topic=jobs")
    for number in range(3):
        assert gateway.post("/produce?topic=jobs&key=k", content=b"job %d" % number).status_code == 200
    return "jobs"


def test_a_queue_is_listed_described_and_looked_into(gateway: httpx.Client, jobs: str) -> None:
    held = take(gateway, jobs, "g", 3)
    assert gateway.post("/ack?group=g", json={"ids": held[:1]}).text == "ok"
    (row,) = gateway.get("/admin/queues?group=g").json()["queues"]
    assert (row["topic"], row["partition"], row["depth"], row["in_flight"]) == (jobs, 0, 2, 2)
    assert row["oldest_s"] >= 0
    assert gateway.get("/admin/queues/g").json()["queues"][0]["depth"] == 2
    peeked = gateway.get(f"/admin/queues/g/messages?topic={jobs}&limit=1").json()
    (message,) = peeked["messages"]
    assert (message["payload"], message["key"], message["state"], message["delivery_count"]) == (
        "job 1",
        "k",
        "acquired",
        1,
    )
    assert message["member"].startswith("http-")


def test_settings_of_a_group_are_set_and_taken_back(gateway: httpx.Client) -> None:
    path, name = "/admin/queues/set/configs", "share.record.lock.duration.ms"
    changed = gateway.patch(path, json={name: "45000"})
    assert (changed.status_code, changed.json()) == (200, {"group": "set", "configs": {name: "45000"}})
    assert gateway.get("/admin/queues/set").json() == {
        "group": "set",
        "configs": {name: "45000"},
        "queues": [],
    }
    assert gateway.patch(path, json={name: None}).json()["configs"] == {}
    refused = gateway.patch(path, json={name: "soon"})
    assert (refused.status_code, name in refused.text) == (400, True)


def test_what_waits_is_purged(gateway: httpx.Client, jobs: str) -> None:
    purged = gateway.delete(f"/admin/queues/purged/messages?topic={jobs}").json()
    assert purged["purged"] >= 3
    assert gateway.get("/admin/queues?group=purged").json()["queues"][0]["depth"] == 0


def test_dead_letters_go_back_to_where_they_came_from(gateway: httpx.Client, jobs: str) -> None:
    configs = {"errors.deadletterqueue.group.enable": "true"}
    gateway.post("/admin/topics", json={"name": LETTERS, "partitions": 2, "configs": configs})
    gateway.delete(f"/admin/queues/strict/messages?topic={jobs}")
    changed = gateway.patch(
        "/admin/queues/strict/configs", json={"errors.deadletterqueue.topic.name": LETTERS}
    )
    assert changed.status_code == 200, changed.text
    gateway.post(f"/produce?topic={jobs}", json={"payload": "bad job", "key": "k", "headers": {"a": "1"}})
    ids = take(gateway, jobs, "strict", 1)
    assert gateway.post("/reject?group=strict", json={"ids": ids, "reason": "unreadable"}).text == "ok"
    # A letter that says nothing of where it came from is left out, once.
    gateway.post(f"/produce?topic={LETTERS}&partition=0", content=b"a stray")
    redriven = stayed = 0
    while redriven < 1 or stayed < 1:
        told = gateway.post(f"/admin/topics/{LETTERS}/redrive", json={"count": 10}).json()
        redriven, stayed = redriven + told["redriven"], stayed + told["stayed"]
    assert (redriven, stayed) == (1, 1)
    (again,) = take(gateway, jobs, "strict", 1)
    peeked = gateway.get(f"/admin/queues/strict/messages?topic={jobs}").json()["messages"]
    assert [(each["payload"], each["key"], each["headers"]) for each in peeked] == [
        ("bad job", "k", {"a": "1"})
    ]
    assert gateway.post("/ack?group=strict", json={"id": again}).text == "ok"


def test_a_letter_whose_topic_is_gone_stays_and_keeps_none_behind_it(
    gateway: httpx.Client, jobs: str
) -> None:
    """It was refused with 409, and came first again with each redrive."""
    letters = "letters-of-two"
    gateway.post("/admin/topics", json={"name": letters, "partitions": 1})
    for topic in ("deleted-long-ago", jobs):
        letter = {"payload": f"of {topic}", "headers": {"__dlq.errors.topic": topic}}
        assert gateway.post(f"/produce?topic={letters}", json=letter).status_code == 200
    answer = gateway.post(f"/admin/topics/{letters}/redrive", json={"count": 10})
    assert (answer.json()["redriven"], answer.json()["stayed"]) == (1, 1)
    assert gateway.post(f"/admin/topics/{letters}/redrive", json={"count": 10}).json()["stayed"] == 0


@pytest.mark.parametrize("body", [b"{", b'{"count": "1"}', b'{"group": "\xff"}'])
def test_a_body_that_cannot_be_read_is_refused(gateway: httpx.Client, body: bytes) -> None:
    answer = gateway.post(f"/admin/topics/{LETTERS}/redrive", content=body)
    assert (answer.status_code, "bad body" in answer.text) == (400, True), answer.text


@pytest.mark.parametrize(
    ("method", "path", "status", "text"),
    [
        ("GET", "/admin/queues/nobody", 404, "unknown group"),
        ("GET", "/admin/queues/g/messages", 400, "topic required"),
        ("GET", "/admin/queues/g/messages?topic=nothing", 404, "unknown topic"),
        ("GET", "/admin/queues/g/messages?topic=telemetry&partition=9", 404, "invalid partition"),
        ("DELETE", "/admin/queues/g/messages", 400, "topic required"),
        ("DELETE", "/admin/queues/g/messages?topic=telemetry&partition=9", 404, "invalid partition"),
        ("POST", "/admin/topics/nothing/redrive", 404, "unknown topic"),
    ],
)
def test_what_is_not_there_is_told(
    gateway: httpx.Client, method: str, path: str, status: int, text: str
) -> None:
    answer = gateway.request(method, path)
    assert (answer.status_code, text in answer.text) == (status, True), answer.text
