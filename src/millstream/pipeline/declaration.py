"""Declares the form and meaning of a topic's records, so that one job serves all kinds of records.

    metrics:                                       # what may be measured; anything else is a dead letter
      temperature: {unit: C, minimum: -60, maximum: 120}
    fields:                                        # columns of a point, and the members of a record that hold them
      time: [at]
      metric: [quantity]
      uuid: [sensor]
      value: [reading]
      hostname: [site, labels.site]                # the first that is there; a dot looks into an object of strings
    sentinels: [[-999, -999]]                      # values that say "no value"

Times are RFC 3339, values are numbers, everything else is text. The default is `dcgm.yaml`, with its nested form.
"""

from importlib.resources import as_file, files
from pathlib import Path

import msgspec

from millstream.pipeline.metrics import Metric

_REQUIRED = ("time", "metric", "uuid", "value")
LABELS = ("gpu_id", "device", "model_name", "hostname", "container", "pod", "namespace", "labels_raw")
"""Columns of a point that may be empty."""


class DeclarationError(ValueError):
    """A declaration that cannot be used; the message says what is wrong and where."""


class Declaration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    metrics: dict[str, Metric]
    fields: dict[str, tuple[str, ...]]
    sentinels: tuple[tuple[float, float], ...] = ()
    nested_gpu_id: bool = False
    """DCGM's nested form has the uuid in `gpu_id`, and the number of the GPU in `labels.gpu`."""

    def members(self) -> tuple[str, ...]:
        """The members of a record that are read, without duplicates."""
        return tuple(
            dict.fromkeys(path.partition(".")[0] for paths in self.fields.values() for path in paths)
        )

    def maps(self) -> frozenset[str]:
        """The members that are objects of strings."""
        return frozenset(
            path.partition(".")[0] for paths in self.fields.values() for path in paths if "." in path
        )


def load_declaration(path: Path) -> Declaration:
    try:
        declared = msgspec.yaml.decode(path.read_bytes(), type=Declaration)
    except OSError as error:
        raise DeclarationError(f"{path} cannot be read: {error.strerror}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DeclarationError(f"{path}: {error}") from error
    _check(path, declared)
    return declared


def _check(path: Path, declared: Declaration) -> None:
    for name in _REQUIRED:
        if not declared.fields.get(name):
            raise DeclarationError(f"{path}: fields.{name} is missing: which member of a record has it?")
    for name in declared.fields:
        if name not in (*_REQUIRED, *LABELS):
            known = ", ".join((*_REQUIRED, *LABELS))
            raise DeclarationError(f"{path}: fields.{name} is no column of a point; they are {known}")
    if not declared.metrics:
        raise DeclarationError(f"{path}: metrics names no metric")
    for name, metric in declared.metrics.items():
        if metric.minimum > metric.maximum:
            raise DeclarationError(f"{path}: metrics.{name} has a minimum above its maximum")
    plain = {declared.fields[name][0] for name in ("time", "value")}
    if plain & declared.maps():
        raise DeclarationError(f"{path}: {', '.join(sorted(plain))} cannot be an object and a value")


with as_file(files(__package__).joinpath("dcgm.yaml")) as _path:
    DCGM = load_declaration(_path)
