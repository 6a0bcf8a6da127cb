"""The OpenAPI 3.1 document of the gateway."""

from typing import Any

from millstream import __version__
from millstream.config.proxy_settings import ProxySettings
from millstream.gateway.bodies import FRAMES, NDJSON
from millstream.gateway.openapi_parts import (
    ANY_OBJECT,
    CHANGES,
    CLOSED,
    COUNT,
    ERROR,
    GROUP,
    GROUP_PATH,
    JSON,
    KEY,
    MESSAGE,
    NAME,
    NUMBER,
    OF_CHANGES,
    OF_PARTITION,
    OF_READS,
    OUTGOING,
    PARTITION_VIEW,
    PRODUCED,
    SETTLE,
    STRING,
    TEXT,
    TOPIC,
    TOPIC_PATH,
    Schema,
    a_list,
    an_object,
    call,
    in_path,
    in_query,
    listed,
    whole,
)
from millstream.gateway.openapi_queues import queue_paths

_RAW: Schema = {"type": "string", "contentMediaType": "application/octet-stream"}
_SLOW = ("400", "403", "413", "429", "502", "503")

Paths = dict[str, dict[str, Any]]


def openapi_document(settings: ProxySettings) -> dict[str, Any]:
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Millstream gateway",
            "version": __version__,
            "description": "Send, take and acknowledge messages over HTTP, and look after the cluster.",
        },
        "paths": {**_message_paths(), **_state_paths(), **_admin_paths(settings), **queue_paths()},
        "components": {"schemas": {"Error": ERROR}},
    }


def _message_paths() -> Paths:
    several = {"oneOf": [OUTGOING, {**a_list(OUTGOING), "minItems": 1}]}
    offset = {"type": "string", "pattern": r"^([0-9]{1,18}|earliest|latest)$"}
    return {
        "/produce": {
            "post": call(
                "produce", "Send a message or a batch; answers when it is as durable as its topic asks for.",
                parameters=[TOPIC, OF_PARTITION, KEY],
                body={JSON: several, NDJSON: _RAW, FRAMES: _RAW, "application/octet-stream": _RAW, TEXT: _RAW},
                answer={JSON: PRODUCED}, problems=_SLOW,
            )
        },
        "/consume": {
            "get": call(
                "consume",
                "Messages of a group, as a stream of events; as one answer for those who accept JSON or frames.",
                parameters=[
                    TOPIC, GROUP, OF_PARTITION, KEY,
                    in_query("permits", "How many messages it may hold in a partition.", whole(1, 100_000)),
                    in_query("limit", "Of one answer: the most messages.", whole(1, 1_000, 100)),
                    in_query("wait", "Of one answer: seconds to wait for a message.", whole(0, 55, 20)),
                ],
                answer={
                    "text/event-stream": STRING, FRAMES: _RAW,
                    JSON: an_object({"count": COUNT, "messages": a_list(MESSAGE)}),
                },
                problems=_SLOW,
            )
        },
        "/ack": {"post": _settling("ack", "The messages are done with.")},
        "/nack": {"post": _settling("nack", "Deliver the messages again, after delay_ms if given.")},
        "/reject": {"post": _settling("reject", "Never deliver the messages again.")},
        "/topics/{topic}/partitions/{partition}/records": {
            "get": call(
                "records", "The log from an offset on; locks nothing.",
                parameters=[
                    TOPIC_PATH, in_path("partition", "The partition.", NUMBER),
                    in_query("offset", "A number, earliest or latest.", offset),
                    in_query("limit", "The most records.", whole(1, 1_000, 100)),
                    in_query("wait", "How many seconds to wait for a record.", whole(0, 30, 0)),
                ],
                answer={
                    JSON: an_object(
                        {
                            "topic": STRING, "partition": COUNT, "records": a_list(MESSAGE), "next_offset": COUNT,
                            "high_watermark": COUNT, "log_start_offset": COUNT,
                        }
                    ),
                    FRAMES: _RAW,
                },
                problems=["400", "403", "404", "416", "429", "502", "503"],
            )
        },
    }  # fmt: skip


def _settling(name: str, summary: str) -> dict[str, Any]:
    optional = in_query("topic", "Checked against the id, if given.", NAME)
    return call(
        name, summary, parameters=[GROUP, optional, OF_PARTITION], body={JSON: SETTLE},
        answer={TEXT: {"type": "string", "enum": ["ok"]}}, problems=["400", "403", "413", "502", "503"],
    )  # fmt: skip


def _state_paths() -> Paths:
    numbers = {"type": "object", "additionalProperties": a_list(COUNT)}
    status = {
        "proxy_config": ANY_OBJECT,
        "broker_status": {"type": "object", "additionalProperties": {"type": "boolean"}},
        "partition_distribution": numbers,
        "partition_leaders": ANY_OBJECT,
        "timestamp": STRING,
    }
    health = "Whether this node serves all it has, and how many brokers do."
    ready = "Whether clients may be sent to this node; for load balancers."
    is_ready = an_object({"ready": {"type": "boolean"}, "reasons": a_list(STRING)})
    return {
        "/topics": {"get": call("topics", "All topics and their partitions.", answer={JSON: numbers})},
        "/health": {"get": call("health", health, answer={JSON: ANY_OBJECT}, problems=["503"])},
        "/ready": {"get": call("ready", ready, answer={JSON: is_ready}, problems=["503"])},
        "/status": {
            "get": call(
                "status",
                "Settings, brokers, and which partitions they lead.",
                answer={JSON: an_object(status)},
            )
        },
        "/metrics": {"get": call("metrics", "What this node counts, for Prometheus.", answer={TEXT: STRING})},
        "/stats": {"get": call("stats", "What this gateway did.", answer={JSON: ANY_OBJECT})},
    }


def _admin_paths(settings: ProxySettings) -> Paths:
    new_topic = {
        "name": NAME, "partitions": whole(1, 64), "replication_factor": whole(1, 3),
        "configs": {"type": "object", "additionalProperties": STRING},
    }  # fmt: skip
    move = {"topic": NAME, "partition": NUMBER, "replicas": {"type": ["array", "null"], "items": NUMBER}}
    moves = {**a_list({**an_object(move, ["topic", "partition"]), **CLOSED}), "minItems": 1}
    created = an_object({"name": STRING, "partitions": COUNT, "replication_factor": COUNT})
    described = an_object(
        {"name": STRING, "id": STRING, "configs": ANY_OBJECT, "partitions": a_list(PARTITION_VIEW)}
    )
    configs = {JSON: an_object({"name": STRING, "configs": ANY_OBJECT})}
    ring = {
        "partitions": COUNT, "virtual_nodes": COUNT, "before": ANY_OBJECT, "after": ANY_OBJECT,
        "moved": a_list(COUNT), "moved_by_modulo": COUNT,
        "cluster_virtual_nodes": {"type": ["integer", "null"]}, "warning": STRING,
    }  # fmt: skip
    of_topic = [TOPIC_PATH]
    return {
        "/admin/brokers": {"get": call("brokers", "The brokers.", answer=listed("brokers"))},
        "/admin/topics": {
            "get": call("list_topics", "Topics and their partition counts.", answer=listed("topics")),
            "post": call(
                "create_topic", f"Create a topic; {settings.max_partitions} partitions if not said.",
                body={JSON: {**an_object(new_topic, ["name"]), **CLOSED}}, answer={JSON: created}, status="201",
                problems=OF_CHANGES,
            ),
        },
        "/admin/topics/{topic}": {
            "get": call(
                "describe_topic", "A topic, its settings and partitions.", parameters=of_topic,
                answer={JSON: described}, problems=OF_READS,
            ),
            "delete": call(
                "delete_topic", "Delete a topic with its messages.", parameters=of_topic, status="204",
                problems=["400", "403", "404", "502", "503"],
            ),
        },
        "/admin/topics/{topic}/partitions": {
            "post": call(
                "add_partitions", "Give a topic more partitions.", parameters=of_topic,
                body={JSON: {**an_object({"count": whole(1, 64)}), **CLOSED}},
                answer={JSON: an_object({"name": STRING, "partitions": COUNT})}, problems=OF_CHANGES,
            )
        },
        "/admin/topics/{topic}/configs": {
            "get": call(
                "topic_configs", "What is set for a topic.", parameters=of_topic, answer=configs, problems=OF_READS
            ),
            "patch": call(
                "change_configs", "Set values of a topic; null goes back to the default.", parameters=of_topic,
                body={JSON: CHANGES}, answer=configs, problems=OF_CHANGES,
            ),
        },
        "/admin/groups": {
            "get": call(
                "groups", "Consumer groups and their states.", answer=listed("groups"), problems=["403", "502", "503"]
            )
        },
        "/admin/groups/{group}": {
            "get": call(
                "describe_group", "A group and its members.", parameters=[GROUP_PATH],
                answer={JSON: ANY_OBJECT}, problems=["400", "403", "404", "502", "503"],
            ),
            "delete": call(
                "delete_group", "Delete an empty group with its offsets.", parameters=[GROUP_PATH], status="204",
                problems=["400", "403", "404", "409", "502", "503"],
            ),
        },
        "/admin/reassignments": {
            "get": call("reassignments", "Partitions that are moving.", answer=listed("reassignments")),
            "post": call(
                "reassign", "Move partitions to other brokers; without replicas, call a move off.",
                body={JSON: moves}, answer={JSON: an_object({"accepted": COUNT, "errors": a_list(ANY_OBJECT)})},
                status="202", problems=OF_CHANGES,
            ),
        },
        "/admin/ring": {
            "get": call(
                "ring", "Which partitions would move if a broker joined or left, with placement ring.",
                parameters=[
                    in_query("partitions", "How many.", whole(1, 10_000, settings.max_partitions)),
                    in_query("virtual_nodes", "Points of each broker.", whole(1, 1_000, settings.virtual_nodes)),
                    in_query("joins", "The id of a broker that joins.", NUMBER),
                    in_query("leaves", "The id of a broker that leaves.", NUMBER),
                ],
                answer={JSON: an_object(ring, [name for name in ring if name != "warning"])}, problems=["400", "403"],
            )
        },
    }  # fmt: skip
