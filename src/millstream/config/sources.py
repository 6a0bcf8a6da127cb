"""Settings from the environment and from flags, as entries that remember their place."""

import re
from collections.abc import Iterable, Mapping

import msgspec

from millstream.config.errors import ConfigError, nearest
from millstream.config.setting import settings_of
from millstream.config.settings import SECTIONS

CONFIG_FILE_VARIABLE = "MILLSTREAM_CONFIG"

_PREFIX = "MILLSTREAM_"
_TEST_PREFIX = "MILLSTREAM_TEST_"
# Kubernetes describes a service named millstream in variables such as MILLSTREAM_SERVICE_HOST,
# MILLSTREAM_PORT (tcp://10.0.0.1:9092) and MILLSTREAM_PORT_9092_TCP_ADDR, in every pod of its namespace.
_SERVICE_LINK_NAME = re.compile(r"_SERVICE_HOST$|_SERVICE_PORT(_|$)|_PORT_\d+_(TCP|UDP|SCTP)(_|$)")
_SERVICE_LINK_VALUE = re.compile(r"(tcp|udp|sctp)://")


class Entry(msgspec.Struct, frozen=True):
    """One value a user gave: `storage.segment_size`, or `kafka.log.segment.bytes`.

    A key at the top of the file, outside of any section, has an empty section.
    """

    section: str
    key: str
    value: object
    where: str

    @property
    def name(self) -> str:
        return self.key if self.section in ("", "kafka") else f"{self.section}.{self.key}"


def from_environment(environ: Mapping[str, str]) -> list[Entry]:
    """Entries of `MILLSTREAM_<SECTION>_<KEY>`; `MILLSTREAM_KAFKA_LOG_DIR` is Kafka's log.dir."""
    return [_variable(name, environ[name]) for name in sorted(environ) if _is_setting(name, environ[name])]


def from_flags(flags: Mapping[str, object]) -> list[Entry]:
    """Entries of `section.key`; None is a flag that was not given."""
    entries = []
    for name, value in flags.items():
        if value is not None:
            section, _, key = name.partition(".")
            entries.append(Entry(section, key, value, "command line"))
    return entries


def _is_setting(name: str, value: str) -> bool:
    if not name.startswith(_PREFIX) or name.startswith(_TEST_PREFIX) or name == CONFIG_FILE_VARIABLE:
        return False
    return not (_SERVICE_LINK_NAME.search(name) or _SERVICE_LINK_VALUE.match(value))


def _variable(name: str, value: str) -> Entry:
    section, _, key = name.removeprefix(_PREFIX).partition("_")
    section = section.lower()
    where = f"environment variable {name}"
    if section == "kafka":
        return Entry(section, key.lower().replace("_", "."), value, where)
    if section not in SECTIONS or not key:
        raise ConfigError("", f"is not a setting{nearest(name, _variables())}", where)
    typed: object = value.split(",") if key == "BOOTSTRAP_SERVERS" else value
    return Entry(section, key.lower(), typed, where)


def _variables() -> Iterable[str]:
    for section, kind in SECTIONS.items():
        for key in settings_of(kind):
            yield f"{_PREFIX}{section}_{key}".upper()
