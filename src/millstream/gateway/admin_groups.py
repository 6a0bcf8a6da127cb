"""/admin/groups: consumer groups of all kinds, from their coordinators."""

from collections.abc import Awaitable, Callable

from millstream.doors import (
    Authoriser,
    Caller,
    CoordinatorKind,
    Coordinators,
    Metadata,
    Operation,
    Permission,
    Resource,
)
from millstream.doors.commands import DeleteGroup, DescribeGroup, ListGroups
from millstream.http.messages import Problem, Request, Response, json_response

Handler = Callable[[Request, Caller], Awaitable[Response]]

_GROUPS = CoordinatorKind.GROUP


class AdminGroups:
    def __init__(self, coordinators: Coordinators, metadata: Metadata, authoriser: Authoriser) -> None:
        self._coordinators = coordinators
        self._metadata = metadata
        self._authoriser = authoriser

    def routes(self) -> dict[str, Handler]:
        return {
            "GET /admin/groups": self._list,
            "GET /admin/groups/{group}": self._describe,
            "DELETE /admin/groups/{group}": self._delete,
        }

    async def _list(self, _request: Request, caller: Caller) -> Response:
        answers = await self._coordinators.ask_all(caller, _GROUPS, ListGroups())
        found = [
            {
                "group": each.group_id,
                "state": each.state,
                "type": each.type,
                "protocol_type": each.protocol_type,
            }
            for answer in answers
            for each in answer.groups
            if self._authoriser.allows(caller, _on_group(Operation.DESCRIBE, each.group_id))
        ]
        return json_response({"count": len(found), "groups": sorted(found, key=lambda each: each["group"])})

    async def _describe(self, request: Request, caller: Caller) -> Response:
        group = self._named(request, caller, Operation.DESCRIBE)
        described = await self._coordinators.ask(caller, _GROUPS, group, DescribeGroup(group))
        members = [
            {"member": each.member_id, "client_id": each.client_id, "host": each.client_host}
            for each in described.members
        ]
        return json_response(
            {
                "group": group, "state": described.state, "protocol_type": described.protocol_type,
                "members": members,
            }
        )  # fmt: skip

    async def _delete(self, request: Request, caller: Caller) -> Response:
        group = self._named(request, caller, Operation.DELETE)
        await self._coordinators.ask(caller, _GROUPS, group, DeleteGroup(group))
        return Response(b"", 204)

    def _named(self, request: Request, caller: Caller, operation: Operation) -> str:
        group = request.params["group"]
        self._authoriser.check(caller, _on_group(operation, group))
        if _GROUPS.value not in self._metadata.image.topics:
            raise Problem(404, "unknown group")
        return group


def _on_group(operation: Operation, group: str) -> Permission:
    return Permission(operation, Resource.GROUP, group)
