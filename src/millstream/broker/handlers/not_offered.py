"""Requests about access rules, users, quotas and transactions, answered as a Kafka cluster without any of them does.

DescribeAcls, CreateAcls and DeleteAcls, versions 1 to 3; CreateDelegationToken and DescribeDelegationToken, versions 1
to 3; RenewDelegationToken and ExpireDelegationToken, versions 1 to 2; DescribeClientQuotas and AlterClientQuotas,
versions 0 to 1; DescribeUserScramCredentials and AlterUserScramCredentials, version 0; DescribeTransactions, version 0;
ListTransactions, versions 0 to 2. Not done: keeping any of these.
"""

import datetime
from typing import NoReturn

from kio.schema.alter_client_quotas.v1 import response as altered_quotas
from kio.schema.alter_client_quotas.v1.request import AlterClientQuotasRequest
from kio.schema.alter_user_scram_credentials.v0.request import AlterUserScramCredentialsRequest
from kio.schema.alter_user_scram_credentials.v0.response import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from kio.schema.create_acls.v3.request import CreateAclsRequest
from kio.schema.create_acls.v3.response import AclCreationResult, CreateAclsResponse
from kio.schema.delete_acls.v3.request import DeleteAclsRequest
from kio.schema.delete_acls.v3.response import DeleteAclsFilterResult, DeleteAclsResponse
from kio.schema.describe_acls.v3.request import DescribeAclsRequest
from kio.schema.describe_acls.v3.response import DescribeAclsResponse
from kio.schema.describe_client_quotas.v1.request import DescribeClientQuotasRequest
from kio.schema.describe_client_quotas.v1.response import DescribeClientQuotasResponse
from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest
from kio.schema.describe_transactions.v0.response import DescribeTransactionsResponse, TransactionState
from kio.schema.describe_user_scram_credentials.v0.request import DescribeUserScramCredentialsRequest
from kio.schema.describe_user_scram_credentials.v0.response import (
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from kio.schema.list_transactions.v2.request import ListTransactionsRequest
from kio.schema.list_transactions.v2.response import ListTransactionsResponse

from millstream.broker.api.call import Call
from millstream.broker.handlers.admin import answer
from millstream.protocol.errors import ErrorCode, KafkaError

_NO_RULES = "this cluster has no access rules"
_NO_USERS = "this cluster has no users with passwords"
_NO_QUOTAS = "this cluster has no quotas for clients"


def describe_acls(_request: DescribeAclsRequest, _call: Call) -> DescribeAclsResponse:
    return answer(
        DescribeAclsResponse, error_code=ErrorCode.SECURITY_DISABLED, error_message=_NO_RULES, resources=()
    )


def create_acls(request: CreateAclsRequest, _call: Call) -> CreateAclsResponse:
    refused = AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=_NO_RULES)
    return answer(CreateAclsResponse, results=(refused,) * len(request.creations))


def delete_acls(request: DeleteAclsRequest, _call: Call) -> DeleteAclsResponse:
    refused = DeleteAclsFilterResult(
        error_code=ErrorCode.SECURITY_DISABLED, error_message=_NO_RULES, matching_acls=()
    )
    return answer(DeleteAclsResponse, filter_results=(refused,) * len(request.filters))


def describe_users(
    request: DescribeUserScramCredentialsRequest, _call: Call
) -> DescribeUserScramCredentialsResponse:
    missing = tuple(
        DescribeUserScramCredentialsResult(
            user=name, error_code=ErrorCode.RESOURCE_NOT_FOUND, error_message=_NO_USERS, credential_infos=()
        )
        for name in dict.fromkeys(each.name for each in request.users or ())
    )
    return answer(
        DescribeUserScramCredentialsResponse, error_code=ErrorCode.NONE, error_message=None, results=missing
    )


def alter_users(request: AlterUserScramCredentialsRequest, _call: Call) -> AlterUserScramCredentialsResponse:
    refused = tuple(
        AlterUserScramCredentialsResult(
            user=name, error_code=ErrorCode.SECURITY_DISABLED, error_message=_NO_USERS
        )
        for name in dict.fromkeys(each.name for each in (*request.deletions, *request.upsertions))
    )
    return answer(AlterUserScramCredentialsResponse, results=refused)


def refuse_token(_request: object, _call: Call) -> NoReturn:
    raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, "this cluster has no delegation tokens")


def describe_quotas(_request: DescribeClientQuotasRequest, _call: Call) -> DescribeClientQuotasResponse:
    return answer(DescribeClientQuotasResponse, error_code=ErrorCode.NONE, error_message=None, entries=())


def alter_quotas(request: AlterClientQuotasRequest, _call: Call) -> altered_quotas.AlterClientQuotasResponse:
    refused = tuple(
        altered_quotas.EntryData(
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            error_message=_NO_QUOTAS,
            entity=tuple(
                altered_quotas.EntityData(entity_type=each.entity_type, entity_name=each.entity_name)
                for each in entry.entity
            ),
        )
        for entry in request.entries
    )
    return answer(altered_quotas.AlterClientQuotasResponse, entries=refused)


# Kafka's names.
_STATES = frozenset({
    "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence",
})  # fmt: skip
_NEVER = datetime.datetime.fromtimestamp(0, datetime.UTC)


def describe_transactions(request: DescribeTransactionsRequest, _call: Call) -> DescribeTransactionsResponse:
    return answer(
        DescribeTransactionsResponse, transaction_states=tuple(map(_unknown, request.transactional_ids))
    )


def _unknown(transactional_id: str) -> TransactionState:
    return TransactionState(
        error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout=datetime.timedelta(),
        transaction_start_time=_NEVER,
        producer_id=-1,
        producer_epoch=-1,
        topics=(),
    )


def list_transactions(request: ListTransactionsRequest, _call: Call) -> ListTransactionsResponse:
    return answer(
        ListTransactionsResponse,
        error_code=ErrorCode.NONE,
        unknown_state_filters=tuple(each for each in request.state_filters if each not in _STATES),
        transaction_states=(),
    )
