"""Types of keys and values: what a configuration's deserializers make of them."""

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    # Typing's own has no defaults before Python 3.13: without a deserializer, a key and a value are bytes.
    from typing_extensions import TypeVar as TypeVarWithDefault

    K = TypeVarWithDefault("K", default=bytes)
    V = TypeVarWithDefault("V", default=bytes)
else:
    K = TypeVar("K")
    V = TypeVar("V")
