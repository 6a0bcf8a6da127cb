"""Access rules, users and quotas of a cluster that has none: lists are empty, and changes say why they are refused."""

from pathlib import Path
from typing import Any

from millstream.protocol.errors import ErrorCode
from support.admin_handlers import in_loop, running
from support.kio_messages import build


@in_loop
async def test_access_rules_are_disabled(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        described = await broker.call("describe_acls", build("describe_acls", 3))
        assert (described.error_code, described.resources) == (ErrorCode.SECURITY_DISABLED, ())
        assert "no access rules" in described.error_message
        created = await broker.call("create_acls", build("create_acls", 3, creations=[{}, {}]))
        assert [each.error_code for each in created.results] == [ErrorCode.SECURITY_DISABLED] * 2
        deleted = await broker.call("delete_acls", build("delete_acls", 3, filters=[{}]))
        assert [each.error_code for each in deleted.filter_results] == [ErrorCode.SECURITY_DISABLED]


@in_loop
async def test_there_are_no_users(tmp_path: Path) -> None:
    name = "describe_user_scram_credentials"
    async with running(tmp_path) as broker:
        listed = await broker.call(name, build(name, 0, users=None))
        assert (listed.error_code, listed.results) == (ErrorCode.NONE, ())
        asked = await broker.call(name, build(name, 0, users=[{"name": "ann"}, {"name": "ann"}]))
        assert _users(asked) == [("ann", ErrorCode.RESOURCE_NOT_FOUND)]
        name = "alter_user_scram_credentials"
        changes = build(name, 0, deletions=[{"name": "ann"}], upsertions=[{"name": "bob"}, {"name": "ann"}])
        altered = await broker.call(name, changes)
        assert _users(altered) == [
            ("ann", ErrorCode.SECURITY_DISABLED),
            ("bob", ErrorCode.SECURITY_DISABLED),
        ]


def _users(answer: Any) -> list[tuple[str, ErrorCode]]:
    return [(each.user, each.error_code) for each in answer.results]


@in_loop
async def test_there_are_no_quotas(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        listed = await broker.call("describe_client_quotas", build("describe_client_quotas", 1))
        assert (listed.error_code, listed.entries) == (ErrorCode.NONE, ())
        entity = {"entity_type": "user", "entity_name": "ann"}
        entry = {"entity": [entity], "ops": [{"key": "producer_byte_rate", "value": 1.0}]}
        altered = await broker.call("alter_client_quotas", build("alter_client_quotas", 1, entries=[entry]))
        (refused,) = altered.entries
        assert refused.error_code is ErrorCode.UNSUPPORTED_VERSION
        assert [(each.entity_type, each.entity_name) for each in refused.entity] == [("user", "ann")]
