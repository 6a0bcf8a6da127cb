"""Parts of the OpenAPI document: schemas, parameters, calls."""

from collections.abc import Mapping, Sequence
from typing import Any

Schema = Mapping[str, Any]

STRING: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0}
ANY_OBJECT: Schema = {"type": "object", "additionalProperties": True}
NAME: Schema = {"type": "string", "minLength": 1, "maxLength": 249, "pattern": "^[a-zA-Z0-9._-]+$"}
NUMBER: Schema = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}
CLOSED: Schema = {"additionalProperties": False}
CHANGES: Schema = {"type": "object", "additionalProperties": {"type": ["string", "null"]}}
"""Changes of settings, by name; null restores the default."""
OF_CHANGES = ("400", "403", "404", "409", "413", "502", "503")
OF_READS = ("403", "404")
TEXT = "text/plain"
JSON = "application/json"

_PROBLEMS = {
    "400": "The request is wrong; the text says how.",
    "403": "Not allowed, or a web page of another origin.",
    "404": "There is no such thing.",
    "409": "It exists already, or is not in a state for this.",
    "413": "The body or the message is too large.",
    "416": "The log does not have this offset.",
    "429": "Over a quota; Retry-After says when to come back.",
    "502": "The broker did not answer: the message may have been written or not.",
    "503": "No broker can take it now; Retry-After says when to come back.",
}


def an_object(properties: Mapping[str, Schema], required: Sequence[str] = ()) -> dict[str, Any]:
    return {"type": "object", "properties": dict(properties), "required": list(required or properties)}


def a_list(items: Schema) -> dict[str, Any]:
    return {"type": "array", "items": items}


MESSAGE = an_object(
    {
        "id": {"type": "string", "description": "For /ack, /nack and /reject, at any gateway."},
        "payload": {"type": ["string", "null"]},
        "created_at": {"type": "string", "format": "date-time"},
        "topic": STRING,
        "partition": COUNT,
        "key": {"type": ["string", "null"]},
        "headers": {"type": "object", "additionalProperties": {"type": ["string", "null"]}},
        "offset": COUNT,
        "delivery_count": COUNT,
        "encoding": {
            "type": "string",
            "enum": ["base64"],
            "description": "There where the payload is not UTF-8.",
        },
    },
    ["id", "payload", "created_at", "topic", "partition", "key", "headers", "offset"],
)
OUTGOING = an_object(
    {
        "payload": {"description": "Text; anything else is kept as its JSON text."},
        "key": {"type": ["string", "null"]},
        "headers": {"type": "object", "additionalProperties": STRING},
        "partition": NUMBER,
        "timestamp": {"type": "integer", "minimum": -1, "maximum": 2**53},
        "encoding": {"type": "string", "enum": ["", "base64"]},
    },
    ["payload"],
)
DURABILITY = {"type": "string", "enum": ["memory", "disk", "replicated", "replicated and on disk"]}
PRODUCED = {
    "oneOf": [
        an_object(
            {
                "id": STRING,
                "topic": STRING,
                "partition": COUNT,
                "offset": {"type": "integer"},
                "durability": DURABILITY,
            }
        ),
        an_object({"ids": a_list(STRING), "topic": STRING, "count": COUNT, "durability": DURABILITY}),
    ]
}
SETTLE = {
    "oneOf": [
        an_object({"id": STRING, "delay_ms": COUNT, "reason": STRING}, ["id"]),
        an_object({"ids": {**a_list(STRING), "minItems": 1, "maxItems": 1_000}}),
        {**a_list(STRING), "minItems": 1, "maxItems": 1_000},
    ]
}
ERROR = an_object({"error": STRING})
PARTITION_VIEW = an_object(
    {
        "partition": COUNT,
        "leader": {"type": ["integer", "null"]},
        "replicas": a_list(COUNT),
        "in_sync": a_list(COUNT),
    }
)


def in_query(
    name: str, description: str, schema: Schema = STRING, *, required: bool = False
) -> dict[str, Any]:
    return {
        "name": name,
        "in": "query",
        "description": description,
        "required": required,
        "schema": dict(schema),
    }


def in_path(name: str, description: str, schema: Schema) -> dict[str, Any]:
    return {"name": name, "in": "path", "description": description, "required": True, "schema": dict(schema)}


def whole(least: int, most: int, default: int | None = None) -> Schema:
    bounds = {"type": "integer", "minimum": least, "maximum": most}
    return bounds if default is None else {**bounds, "default": default}


TOPIC = in_query("topic", "The topic.", NAME, required=True)
GROUP = in_query(
    "group", "The consumer group.", {"type": "string", "minLength": 1, "maxLength": 255}, required=True
)
OF_PARTITION = in_query("partition", "The partition; all of them, or the one of the key, without.", NUMBER)
KEY = in_query("key", "Messages of one key go to one partition.")
GROUP_PATH = in_path("group", "The group.", {"type": "string", "minLength": 1, "maxLength": 255})
TOPIC_PATH = in_path("topic", "The topic.", NAME)


def call(
    name: str, summary: str, *, parameters: Sequence[Schema] = (), body: Mapping[str, Schema] | None = None,
    answer: Mapping[str, Schema] | None = None, status: str = "200", problems: Sequence[str] = ("403",),
) -> dict[str, Any]:  # fmt: skip
    responses: dict[str, Any] = {status: {"description": "The answer."}}
    if answer:
        responses[status]["content"] = {kind: {"schema": dict(schema)} for kind, schema in answer.items()}
    for problem in problems:
        content = {TEXT: {"schema": dict(STRING)}, JSON: {"schema": ERROR}}
        responses[problem] = {"description": _PROBLEMS[problem], "content": content}
    made: dict[str, Any] = {
        "operationId": name,
        "summary": summary,
        "parameters": list(parameters),
        "responses": responses,
    }
    if body is not None:
        content = {kind: {"schema": dict(schema)} for kind, schema in body.items()}
        made["requestBody"] = {"required": True, "content": content}
    return made


def listed(name: str) -> dict[str, Schema]:
    return {JSON: an_object({"count": COUNT, name: a_list(ANY_OBJECT)})}
