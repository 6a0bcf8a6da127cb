"""DescribeTransactions and ListTransactions of a cluster that has none."""

import datetime

from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest
from kio.schema.describe_transactions.v0.response import DescribeTransactionsResponse, TransactionState
from kio.schema.list_transactions.v2.request import ListTransactionsRequest
from kio.schema.list_transactions.v2.response import ListTransactionsResponse

from millstream.broker.api.call import Call
from millstream.broker.handlers.admin import answer
from millstream.protocol.errors import ErrorCode

# Kafka's names.
_STATES = frozenset({
    "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence",
})  # fmt: skip
_NEVER = datetime.datetime.fromtimestamp(0, datetime.UTC)


def describe(request: DescribeTransactionsRequest, _call: Call) -> DescribeTransactionsResponse:
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


def list_all(request: ListTransactionsRequest, _call: Call) -> ListTransactionsResponse:
    return answer(
        ListTransactionsResponse,
        error_code=ErrorCode.NONE,
        unknown_state_filters=tuple(each for each in request.state_filters if each not in _STATES),
        transaction_states=(),
    )
