"""CRC-32C, loaded without what its package loads beside it."""

import subprocess
import sys

from crc32c import crc32c as of_the_package
from hypothesis import given
from hypothesis import strategies as st

from millstream.protocol.checksum import crc32c


def test_the_check_value_of_the_standard() -> None:
    assert crc32c(b"123456789") == 0xE3069283


@given(data=st.binary(max_size=200), before=st.integers(0, 0xFFFFFFFF))
def test_it_is_the_function_of_the_package(data: bytes, before: int) -> None:
    assert crc32c(memoryview(data), before) == of_the_package(data, before)


def test_a_node_that_only_computes_checksums_loads_no_command_line_and_no_mail() -> None:
    code = (
        "import sys, millstream.protocol.checksum; sys.exit(bool({'crc32c', 'email'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
