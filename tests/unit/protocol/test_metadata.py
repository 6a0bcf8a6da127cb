"""The hand-written Metadata codec against kio, at every version."""

import dataclasses
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.protocol.errors import ErrorCode
from millstream.protocol.metadata import (
    ALL_CLUSTER_OPERATIONS,
    ALL_TOPIC_OPERATIONS,
    NOT_ASKED,
    BrokerAddress,
    ClusterMetadata,
    MetadataRequest,
    PartitionMetadata,
    TopicMetadata,
    decode_metadata,
    encode_metadata_reply,
)
from millstream.protocol.wire import MalformedRequest
from support.kio_messages import build, decode, encode, messages

VERSIONS = range(14)
PADDING = 3

numbers = st.integers(0, 2**31 - 1)
names = st.text(max_size=20)
replicas = st.lists(numbers, max_size=4).map(tuple)
partitions = st.builds(
    PartitionMetadata,
    error=st.sampled_from(ErrorCode),
    partition=numbers,
    leader=st.integers(-1, 100),
    leader_epoch=st.integers(-1, 100),
    replicas=replicas,
    in_sync_replicas=replicas,
    offline_replicas=replicas,
)
topics = st.builds(
    TopicMetadata,
    error=st.sampled_from(ErrorCode),
    name=names,
    topic_id=st.binary(min_size=16, max_size=16),
    is_internal=st.booleans(),
    partitions=st.lists(partitions, max_size=4),
)
clusters = st.builds(
    ClusterMetadata,
    cluster_id=names,
    controller_id=st.integers(-1, 100),
    brokers=st.lists(
        st.builds(BrokerAddress, node_id=numbers, host=names, port=numbers, rack=st.none() | names),
        max_size=3,
    ),
)
topic_lists = st.lists(topics, max_size=4)
requests = st.builds(
    MetadataRequest,
    topics=st.none(),
    allow_auto_topic_creation=st.booleans(),
    include_cluster_operations=st.booleans(),
    include_topic_operations=st.booleans(),
)


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=10)
@given(data=st.data())
def test_requests_are_read_as_kio_wrote_them(version: int, data: st.DataObject) -> None:
    sent = data.draw(messages("metadata", version, "request"))
    read = decode_metadata(memoryview(bytes(PADDING) + encode(sent)), PADDING, version)
    if sent.topics is None or (version == 0 and not sent.topics):
        assert read.topics is None
    else:
        assert read.topics is not None
        expected = [(topic.name, getattr(topic, "topic_id", None) or UUID(int=0)) for topic in sent.topics]
        assert [(topic.name, UUID(bytes=topic.topic_id)) for topic in read.topics] == expected
    assert read.allow_auto_topic_creation == getattr(sent, "allow_auto_topic_creation", True)
    assert read.include_topic_operations == getattr(sent, "include_topic_authorized_operations", False)
    assert read.include_cluster_operations == getattr(sent, "include_cluster_authorized_operations", False)


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=10)
@given(cluster=clusters, topics=topic_lists, request=requests)
def test_replies_are_read_by_kio_as_we_wrote_them(
    version: int, cluster: ClusterMetadata, topics: list[TopicMetadata], request: MetadataRequest
) -> None:
    read = decode("metadata", version, "response", encode_metadata_reply(version, request, cluster, topics))
    present = {field.name for field in dataclasses.fields(read)}
    assert [(each.node_id, each.host, each.port) for each in read.brokers] == [
        each[:3] for each in cluster.brokers
    ]
    if version >= 1:
        assert [each.rack for each in read.brokers] == [each.rack for each in cluster.brokers]
        assert read.controller_id == cluster.controller_id
    if "cluster_id" in present:
        assert read.cluster_id == cluster.cluster_id
    if "cluster_authorized_operations" in present:
        asked = request.include_cluster_operations
        assert read.cluster_authorized_operations == (ALL_CLUSTER_OPERATIONS if asked else NOT_ASKED)
    assert len(read.topics) == len(topics)
    for ours, theirs in zip(topics, read.topics, strict=True):
        assert (theirs.error_code, theirs.name) == (ours.error, ours.name)
        if version >= 1:
            assert theirs.is_internal == ours.is_internal
        if version >= 8:
            asked = request.include_topic_operations
            assert theirs.topic_authorized_operations == (ALL_TOPIC_OPERATIONS if asked else NOT_ASKED)
        if version >= 10:
            assert (theirs.topic_id or UUID(int=0)).bytes == ours.topic_id
        assert len(theirs.partitions) == len(ours.partitions)
        for one, other in zip(ours.partitions, theirs.partitions, strict=True):
            assert (other.error_code, other.partition_index, other.leader_id) == one[:3]
            assert (tuple(other.replica_nodes), tuple(other.isr_nodes)) == (
                one.replicas,
                one.in_sync_replicas,
            )
            if version >= 5:
                assert tuple(other.offline_replicas) == one.offline_replicas
            if version >= 7:
                assert other.leader_epoch == one.leader_epoch


@pytest.mark.parametrize(("version", "name"), [(9, ""), (12, None), (13, None)])
def test_a_topic_known_by_id_only_has_no_name_from_version_12_on(version: int, name: str | None) -> None:
    topic = TopicMetadata(ErrorCode.UNKNOWN_TOPIC_ID, None, b"\1" * 16, False, [])
    request = MetadataRequest(None, True, False, False)
    body = encode_metadata_reply(version, request, ClusterMetadata("c", 1, []), [topic])
    assert decode("metadata", version, "response", body).topics[0].name == name


def test_no_topics_means_all_in_version_0_and_none_later() -> None:
    assert decode_metadata(memoryview(encode(build("metadata", 0))), 0, 0).topics is None
    assert decode_metadata(memoryview(encode(build("metadata", 1, topics=()))), 0, 1).topics == []
    assert decode_metadata(memoryview(encode(build("metadata", 1, topics=None))), 0, 1).topics is None


@pytest.mark.parametrize("version", range(10))
def test_a_topic_without_a_name_is_malformed_before_topic_ids(version: int) -> None:
    whole = encode(build("metadata", version, topics=[{"name": "x"}]))
    nameless = whole.replace(b"\2x" if version >= 9 else b"\0\1x", b"\0" if version >= 9 else b"\xff\xff", 1)
    with pytest.raises(MalformedRequest):
        decode_metadata(memoryview(nameless), 0, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_cut_anywhere_is_malformed(version: int) -> None:
    whole = encode(build("metadata", version, topics=[{"name": "topic"}]))
    decode_metadata(memoryview(whole), 0, version)
    for size in range(len(whole)):
        with pytest.raises(MalformedRequest):
            decode_metadata(memoryview(whole[:size]), 0, version)
