"""The OpenAPI 3.1 document of the API."""

from typing import Any

from millstream import __version__
from millstream.pipeline.api import schemas
from millstream.pipeline.api.calls import CALLS, TIMES, Call, Parameter

_PROBLEMS = {
    "400": "A parameter is wrong; the error names it.",
    "401": "The token is missing or wrong.",
    "404": "There is no such GPU.",
    "503": "The store cannot be read now.",
}


def openapi_document(*, has_token: bool = False) -> dict[str, Any]:
    paths = {call.path: {"get": _operation(call)} for call in CALLS}
    paths["/api/v1/pipeline"] = {
        "get": _plain(
            "pipeline", "What the job says about itself: throughput, lag, counts.", schemas.PIPELINE
        )
    }
    history = _plain("history", "Rows a second and lag of the job, by the minute.", schemas.HISTORY)
    history["parameters"] = [_parameter(each, "query") for each in TIMES]
    history["responses"]["400"] = _response(_PROBLEMS["400"], _ERROR)
    paths["/api/v1/pipeline/history"] = {"get": history}
    paths["/health"] = {"get": _plain("health", "Whether this server answers.", schemas.HEALTH)}
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "Millstream telemetry",
            "version": __version__,
            "description": "Telemetry of a fleet of GPUs: points, rollups and health events.",
        },
        "paths": paths,
        "components": {"schemas": {"Error": schemas.ERROR}},
    }
    if has_token:
        _require_token(document)
    return document


def _require_token(document: dict[str, Any]) -> None:
    document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for path, methods in document["paths"].items():
        if path.startswith("/api/"):
            methods["get"]["security"] = [{"token": []}]
            methods["get"]["responses"]["401"] = _response(_PROBLEMS["401"], _ERROR)


def _operation(call: Call) -> dict[str, Any]:
    statuses = ["400", "503"] if not call.path_parameters else ["400", "404", "503"]
    operation = _plain(call.name, call.summary, call.schema)
    operation["parameters"] = [
        *(_parameter(each, "path") for each in call.path_parameters),
        *(_parameter(each, "query") for each in call.parameters),
    ]
    operation["responses"] |= {status: _response(_PROBLEMS[status], _ERROR) for status in statuses}
    return operation


def _plain(name: str, summary: str, schema: schemas.Schema) -> dict[str, Any]:
    return {"operationId": name, "summary": summary, "responses": {"200": _response("The answer.", schema)}}


def _parameter(parameter: Parameter, place: str) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": place,
        "description": parameter.description,
        "required": parameter.required,
        "schema": dict(parameter.schema),
    }


def _response(description: str, schema: schemas.Schema) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": dict(schema)}}}


_ERROR = {"$ref": "#/components/schemas/Error"}
