import subprocess
import sys

from millstream import client


def test_importing_the_package_does_not_import_librdkafka() -> None:
    code = "import sys, millstream.client; sys.exit('confluent_kafka' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_public_name_is_there() -> None:
    assert [name for name in client.__all__ if not hasattr(client, name)] == []
