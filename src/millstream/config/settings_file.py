"""The YAML file, read into entries that remember their line."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.config.errors import ConfigError
from millstream.config.settings import SECTIONS
from millstream.config.sources import Entry

if TYPE_CHECKING:
    from yaml.nodes import Node

_SECTIONS = {*SECTIONS, "topics", "kafka"}


def from_file(path: Path) -> list[Entry]:
    """Every `section: {key: value}` of the file, and every `key: value`; a topic of `topics` is an entry of entries."""
    import yaml

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError("", f"the file cannot be read: {reason}", str(path)) from None
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        return list(_File(path, yaml.SafeLoader("")).entries(root)) if root is not None else []
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError("", f"the file is not valid YAML: {error.problem}", f"{path}:{line}") from None
    except yaml.YAMLError:
        raise ConfigError(
            "", "the file is not valid YAML: it has characters YAML does not allow", str(path)
        ) from None


class _File:
    def __init__(self, path: Path, loader: Any) -> None:
        self._path = path
        self._loader = loader

    def entries(self, root: "Node") -> Iterator[Entry]:
        for section, node in self._pairs(root, "the file"):
            # A section with all its keys commented out is empty, not wrong.
            if self._is_null(node):
                continue
            if self._is_scalar(node) and section not in _SECTIONS:
                yield self._entry("", section, node, topic=False)
                continue
            for key, value_node in self._pairs(node, section):
                yield self._entry(section, key, value_node, topic=section == "topics")

    def _entry(self, section: str, key: str, node: "Node", *, topic: bool) -> Entry:
        value: object
        if topic and not self._is_null(node):
            name = f"topics.{key}"
            value = [self._entry(name, inner, leaf, topic=False) for inner, leaf in self._pairs(node, name)]
        else:
            value = self._loader.construct_object(node, deep=True)
        return Entry(section, key, value, self._where(node))

    def _pairs(self, node: "Node", name: str) -> Iterator[tuple[str, "Node"]]:
        from yaml.nodes import MappingNode

        if not isinstance(node, MappingNode):
            raise ConfigError(
                name, "must be a mapping of keys to values, such as 'key: value'", self._where(node)
            )
        seen: set[str] = set()
        for key_node, value_node in node.value:
            key = str(key_node.value)
            if key in seen:
                raise ConfigError(key, "is there twice; keep one", self._where(key_node))
            seen.add(key)
            yield key, value_node

    def _where(self, node: "Node") -> str:
        return f"{self._path}:{node.start_mark.line + 1}"

    def _is_scalar(self, node: "Node") -> bool:
        from yaml.nodes import ScalarNode

        return isinstance(node, ScalarNode)

    def _is_null(self, node: "Node") -> bool:
        return node.tag == "tag:yaml.org,2002:null"
