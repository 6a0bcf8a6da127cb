"""Security from Kafka's properties, by the Java client's names and by librdkafka's, for readers and for the sink."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from millstream.spark.wire.errors import OptionError
from millstream.spark.wire.sasl import MECHANISMS
from millstream.spark.wire.settings import Protocol, Sasl, Security, Tls

_JAAS_OPTION = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))""")


def security_of(properties: Mapping[str, str]) -> Security:
    name = properties.get("security.protocol", Protocol.PLAINTEXT.value).upper()
    try:
        protocol = Protocol(name)
    except ValueError:
        choices = ", ".join(each.value for each in Protocol)
        raise OptionError(f"option kafka.security.protocol is {name!r}; choose one of {choices}") from None
    return Security(
        protocol,
        tls_of(properties) if protocol.has_tls else Tls(),
        sasl_of(properties) if protocol.has_sasl else None,
    )


def tls_of(properties: Mapping[str, str]) -> Tls:
    trust = _store(properties, "truststore")
    keys = _store(properties, "keystore")
    certificate_file = properties.get("ssl.certificate.location") or keys.location
    algorithm = properties.get("ssl.endpoint.identification.algorithm", "https").strip().lower()
    return Tls(
        ca_file=properties.get("ssl.ca.location") or trust.location,
        ca_pem=properties.get("ssl.ca.pem") or trust.certificates,
        certificate_file=certificate_file,
        certificate_pem=properties.get("ssl.certificate.pem") or keys.certificates,
        # A PEM key store has certificate and key in one file, which the ssl module takes as they are.
        key_file=properties.get("ssl.key.location"),
        key_pem=properties.get("ssl.key.pem") or properties.get("ssl.keystore.key"),
        key_password=properties.get("ssl.key.password"),
        check_hostname=algorithm not in ("", "none"),
        verify=properties.get("enable.ssl.certificate.verification", "true").lower() != "false",
    )


@dataclass(frozen=True, slots=True)
class _Store:
    location: str | None
    certificates: str | None


def _store(properties: Mapping[str, str], name: str) -> _Store:
    prefix = f"ssl.{name}."
    location = properties.get(prefix + "location")
    certificates = properties.get(prefix + ("certificates" if name == "truststore" else "certificate.chain"))
    kind = properties.get(prefix + "type", "JKS").upper()
    if location is not None and kind != "PEM":
        raise OptionError(
            f"option kafka.{prefix}location is a {kind} file, which needs Java to be read; "
            f"convert it to PEM and set kafka.{prefix}type to PEM"
        )
    return _Store(location, certificates)


def sasl_of(properties: Mapping[str, str]) -> Sasl:
    mechanism = properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or "GSSAPI"
    if mechanism not in MECHANISMS:
        raise OptionError(
            f"option kafka.sasl.mechanism is {mechanism}, which this source cannot do; "
            f"use one of {', '.join(MECHANISMS)}"
        )
    login = jaas_options(properties.get("sasl.jaas.config", ""))
    username = properties.get("sasl.username") or login.get("username", "")
    password = properties.get("sasl.password") or login.get("password", "")
    endpoint = properties.get("sasl.oauthbearer.token.endpoint.url", "")
    if mechanism == "OAUTHBEARER":
        username = _first(properties, "sasl.oauthbearer.client.id", login.get("clientid", ""))
        password = _first(properties, "sasl.oauthbearer.client.secret", login.get("clientsecret", ""))
        if not endpoint.startswith(("http://", "https://")):
            raise OptionError(
                "option kafka.sasl.oauthbearer.token.endpoint.url must be the http(s) address of the token endpoint"
            )
    if not username:
        raise OptionError(
            f"SASL {mechanism} needs a user: set kafka.sasl.jaas.config, or kafka.sasl.username and kafka.sasl.password"
        )
    scope = _first(properties, "sasl.oauthbearer.scope", login.get("scope", ""))
    return Sasl(mechanism, username, password, endpoint, scope)


def _first(properties: Mapping[str, str], name: str, default: str) -> str:
    return properties.get(name) or default


def jaas_options(text: str) -> dict[str, str]:
    """The options of a login module: `...PlainLoginModule required username="u" password="p";`."""
    return {
        found[1].lower(): re.sub(r"\\(.)", r"\1", found[2]) if found[2] is not None else found[3]
        for found in _JAAS_OPTION.finditer(text)
    }
