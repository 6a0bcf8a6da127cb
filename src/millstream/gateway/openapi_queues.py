"""The calls of /admin/queues in the OpenAPI document."""

from typing import Any

from millstream.gateway.openapi_parts import (
    ANY_OBJECT,
    CHANGES,
    CLOSED,
    COUNT,
    GROUP_PATH,
    JSON,
    MESSAGE,
    NAME,
    NUMBER,
    OF_CHANGES,
    STRING,
    TOPIC,
    TOPIC_PATH,
    a_list,
    an_object,
    call,
    in_query,
    listed,
    whole,
)

_LOOKS = ("400", "403", "404", "502", "503")


def queue_paths() -> dict[str, dict[str, Any]]:
    of_group = [GROUP_PATH]
    configs = {JSON: an_object({"group": STRING, "configs": ANY_OBJECT})}
    described = an_object({"group": STRING, "configs": ANY_OBJECT, "queues": a_list(ANY_OBJECT)})
    partition = in_query("partition", "The partition.", NUMBER)
    redrive = {
        "count": whole(1, 10_000, 1_000),
        "group": {"type": "string", "minLength": 1, "maxLength": 255},
    }
    return {
        "/admin/queues": {
            "get": call(
                "queues", "All queues: depth, messages out for delivery, age of the oldest, dead letters.",
                parameters=[
                    in_query("group", "Only of this group."), in_query("topic", "Only of this topic.", NAME)
                ],
                answer=listed("queues"), problems=("400", "403", "502", "503"),
            )
        },
        "/admin/queues/{group}": {
            "get": call(
                "describe_queue", "A group's settings and its queues, by partition.", parameters=of_group,
                answer={JSON: described}, problems=_LOOKS,
            )
        },
        "/admin/queues/{group}/configs": {
            "get": call(
                "queue_configs", "What is set for a group.", parameters=of_group, answer=configs, problems=_LOOKS
            ),
            "patch": call(
                "change_queue_configs", "Set locks, limits, back-off; null goes back to the default.",
                parameters=of_group, body={JSON: CHANGES}, answer=configs, problems=OF_CHANGES,
            ),
        },
        "/admin/queues/{group}/messages": {
            "get": call(
                "peek", "Messages that are not settled; locks nothing.",
                parameters=[
                    *of_group, TOPIC, partition,
                    in_query("offset", "From here on.", {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}),
                    in_query("limit", "The most messages.", whole(1, 1_000, 10)),
                ],
                answer={JSON: an_object({"count": COUNT, "messages": a_list(MESSAGE)})}, problems=_LOOKS,
            ),
            "delete": call(
                "purge", "Give up all messages of a topic, or of one partition, that wait for the group.",
                parameters=[*of_group, TOPIC, partition],
                answer={JSON: an_object({"group": STRING, "topic": STRING, "purged": COUNT})}, problems=_LOOKS,
            ),
        },
        "/admin/topics/{topic}/redrive": {
            "post": call(
                "redrive", "Send dead letters of this topic back to where they came from.",
                parameters=[TOPIC_PATH], body={JSON: {**an_object(redrive), "required": [], **CLOSED}},
                answer={JSON: an_object({"topic": STRING, "redriven": COUNT, "stayed": COUNT})},
                problems=OF_CHANGES,
            )
        },
    }  # fmt: skip
