"""Packets of all kinds for property tests: what either version can say."""

from hypothesis import strategies as st

from millstream.protocol.mqtt import packets as p
from millstream.protocol.mqtt import properties as pr

# Few characters of one to four bytes each: a larger alphabet takes minutes and finds nothing more.
texts = st.text("a/$ü€\U0001f600\ufeff+#", max_size=6)
names = st.text("a/$ü€\U0001f600\ufeff", min_size=1, max_size=6)
ids = st.integers(1, 65_535)
u16, u32 = st.integers(0, 0xFFFF), st.integers(0, 0xFFFF_FFFF)
blobs = st.binary(max_size=40)
NOTHING = st.just(())
users = st.lists(st.tuples(texts, texts), max_size=3).map(tuple)


def maybe(of):
    return st.none() | of


_FIELDS = {
    "user_properties": users,
    "payload_format": maybe(st.integers(0, 1)),
    "message_expiry_s": maybe(u32),
    "content_type": maybe(texts),
    "response_topic": maybe(names),
    "correlation_data": maybe(blobs),
    "topic_alias": maybe(ids),
    "will_delay_s": u32,
    "session_expiry_s": maybe(u32),
    "receive_maximum": maybe(ids),
    "maximum_packet_size": maybe(st.integers(1, 0xFFFF_FFFF)),
    "topic_alias_maximum": maybe(u16),
    "assigned_client_identifier": maybe(texts),
    "reason_string": maybe(texts),
    "server_keep_alive_s": maybe(u16),
    "response_information": maybe(texts),
    "server_reference": maybe(texts),
    "authentication_method": maybe(texts),
}


def _properties(made, **others):
    flags = {name: maybe(st.integers(0, 1)) for name in made.__struct_fields__}
    known = flags | {name: _FIELDS[name] for name in made.__struct_fields__ if name in _FIELDS} | others
    if "authentication_data" in known:
        known["authentication_data"] = (
            st.none() if "authentication_data" not in others else others["authentication_data"]
        )
    return st.builds(made, **known)


def _only_5(version, made, **others):
    return _properties(made, **others) if version == p.V5 else st.just(made())


def _acks(made, reasons, version):
    return st.builds(
        made,
        packet_id=ids,
        reason=st.sampled_from(reasons) if version == p.V5 else st.just(0),
        properties=_only_5(version, pr.AckProperties),
    )


def client_packets(version):
    """What a client may send after CONNECT."""
    handling = st.sampled_from(p.RetainHandling) if version == p.V5 else st.just(p.RetainHandling.ALWAYS)
    flag = st.booleans() if version == p.V5 else st.just(False)
    filters = st.builds(
        p.Filter,
        filter=names,
        qos=st.integers(0, 2),
        no_local=st.just(False),
        retain_as_published=flag,
        retain_handling=handling,
    )
    return st.one_of(
        publishes(version),
        _acks(p.Puback, [0, 0x10, 0x80, 0x97], version),
        _acks(p.Pubrec, [0, 0x10, 0x80, 0x97], version),
        _acks(p.Pubrel, [0, 0x92], version),
        _acks(p.Pubcomp, [0, 0x92], version),
        st.builds(
            p.Subscribe,
            packet_id=ids,
            filters=st.lists(filters, min_size=1, max_size=3).map(tuple),
            properties=_only_5(
                version,
                pr.SubscribeProperties,
                subscription_identifiers=st.lists(st.integers(1, 268_435_455), max_size=1).map(tuple),
            ),
        ),
        st.builds(
            p.Unsubscribe,
            packet_id=ids,
            filters=st.lists(names, min_size=1, max_size=3).map(tuple),
            properties=_only_5(version, pr.UnsubscribeProperties),
        ),
        st.just(p.Pingreq()),
        st.builds(
            p.Disconnect,
            reason=st.sampled_from([0, 4, 0x80, 0x98]) if version == p.V5 else st.just(0),
            properties=_only_5(version, pr.DisconnectProperties, server_reference=st.none()),
        ),
    )


def publishes(version, *, identifiers=NOTHING):
    def with_id(packet):
        return (
            packet
            if packet.qos
            else p.Publish(packet.topic, packet.payload, 0, 0, packet.retain, False, packet.properties)
        )

    return st.builds(
        p.Publish,
        topic=names,
        payload=blobs,
        qos=st.integers(0, 2),
        packet_id=ids,
        retain=st.booleans(),
        dup=st.booleans(),
        properties=_only_5(version, pr.PublishProperties, subscription_identifiers=identifiers),
    ).map(with_id)


def connects(version):
    wills = st.builds(
        p.Will,
        topic=names,
        payload=blobs,
        qos=st.integers(0, 2),
        retain=st.booleans(),
        properties=_only_5(version, pr.WillProperties),
    )
    credentials = st.tuples(st.none(), st.none()) | st.tuples(texts, maybe(blobs))
    return credentials.flatmap(
        lambda pair: st.builds(
            p.Connect,
            client_id=texts,
            version=st.just(version),
            clean_start=st.booleans(),
            keep_alive_s=u16,
            username=st.just(pair[0]),
            password=st.just(pair[1]),
            will=maybe(wills),
            properties=_only_5(version, pr.ConnectProperties),
        )
    )


def server_packets(version):
    """What a server may send."""
    codes = st.sampled_from([0, 1, 2, 0x80])
    return st.one_of(
        publishes(version, identifiers=st.lists(st.integers(1, 1 << 20), max_size=3).map(tuple)),
        st.builds(
            p.Connack,
            reason=st.sampled_from([0, 0x80, 0x97]) if version == p.V5 else st.just(0),
            session_present=st.booleans(),
            properties=_only_5(version, pr.ConnackProperties),
        ),
        _acks(p.Puback, [0, 0x10, 0x97], version),
        _acks(p.Pubcomp, [0, 0x92], version),
        st.builds(
            p.Suback,
            packet_id=ids,
            reasons=st.lists(codes, min_size=1, max_size=3).map(tuple),
            properties=_only_5(version, pr.AckProperties),
        ),
        st.builds(
            p.Unsuback,
            packet_id=ids,
            reasons=st.just((0, 0x11) if version == p.V5 else ()),
            properties=_only_5(version, pr.AckProperties),
        ),
        st.just(p.Pingresp()),
        *(
            [
                st.builds(
                    p.Disconnect,
                    reason=st.sampled_from([0, 0x8E, 0x9C]),
                    properties=_properties(pr.DisconnectProperties),
                ),
                st.builds(
                    p.Auth,
                    reason=st.sampled_from([0, 0x18, 0x19]),
                    properties=_properties(pr.AuthProperties, authentication_data=maybe(blobs)),
                ),
            ]
            if version == p.V5
            else []
        ),
    )
