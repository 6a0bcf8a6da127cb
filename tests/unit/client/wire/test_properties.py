import pytest

pytest.importorskip("numpy", reason="the `spark` extra is not installed")

from millstream.client.errors import ConfigurationError
from millstream.client.wire.properties import addresses, jaas_options, security_of
from millstream.client.wire.settings import Protocol, Sasl
from millstream.spark.errors import OptionError
from millstream.spark.producer_properties import producer_properties

JAAS = (
    'org.apache.kafka.common.security.scram.ScramLoginModule required username="al,ice" password="a\\"b;c";'
)


def test_a_login_module_of_java_names_the_user() -> None:
    assert jaas_options(JAAS) == {"username": "al,ice", "password": 'a"b;c'}
    security = security_of(
        {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": JAAS}
    )
    assert security.protocol is Protocol.SASL_PLAINTEXT
    assert security.sasl == Sasl("SCRAM-SHA-512", "al,ice", 'a"b;c')
    assert 'a"b;c' not in repr(security)


def test_pem_stores_of_java_and_files_of_librdkafka_mean_the_same() -> None:
    java = security_of(
        {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": "ca.pem",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": "me.pem",
            "ssl.endpoint.identification.algorithm": "",
        }
    ).tls
    assert (java.ca_file, java.certificate_file, java.check_hostname) == ("ca.pem", "me.pem", False)
    other = security_of({"security.protocol": "SSL", "ssl.ca.location": "ca.pem"}).tls
    assert (other.ca_file, other.check_hostname) == ("ca.pem", True)


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        ({"security.protocol": "TLS"}, "choose one of PLAINTEXT, SSL"),
        ({"security.protocol": "SASL_SSL"}, "mechanism is GSSAPI, which cannot be done here"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "needs a user"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "t.jks"}, "convert it to PEM"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, "token endpoint"),
    ],
)
def test_what_cannot_be_done_is_said(properties: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        security_of(properties)
    with pytest.raises(OptionError, match=f"option kafka.*{says}"):
        producer_properties({"bootstrap.servers": "a:1", **properties})


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        ("n1:9093", (("n1", 9093),)),
        ("n1", (("n1", 9092),)),
        ("PLAINTEXT://n1:1, [::1]:2,[::1]", (("n1", 1), ("::1", 2), ("::1", 9092))),
    ],
)
def test_addresses(servers: str, expected: tuple[tuple[str, int], ...]) -> None:
    assert addresses(servers) == expected


@pytest.mark.parametrize("servers", ["", " , ", "n1:port", ":9092", "n1:0", "n1:70000"])
def test_what_is_no_address_is_refused(servers: str) -> None:
    with pytest.raises(ConfigurationError, match="HOST:PORT"):
        addresses(servers)


def test_the_sink_gets_librdkafkas_names() -> None:
    made = producer_properties(
        {
            "bootstrap.servers": "a:1",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.jaas.config": JAAS,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": "-----BEGIN",
            "max.request.size": "5000",
            "buffer.memory": "1048576",
            "compression.type": "zstd",
        }
    )
    assert made["sasl.username"] == "al,ice"
    assert made["ssl.ca.pem"] == "-----BEGIN"
    assert made["message.max.bytes"] == "5000"
    assert made["queue.buffering.max.kbytes"] == 1024
    assert made["compression.type"] == "zstd"
    assert made["enable.idempotence"] is True
    assert "sasl.jaas.config" not in made


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        ({"acks": "1"}, "acks is '1'"),
        ({"enable.idempotence": "false"}, "cannot be turned off"),
        ({"transactional.id": "t"}, "at least once"),
    ],
)
def test_the_sink_keeps_its_guarantee(properties: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        producer_properties({"bootstrap.servers": "a:1", **properties})
