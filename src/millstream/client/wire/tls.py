"""TLS from PEM files or PEM text."""

import contextlib
import os
import socket
import ssl
import tempfile
from collections.abc import Iterator

from millstream.client.errors import ConfigurationError
from millstream.client.wire.settings import Tls


def wrap(plain: socket.socket, host: str, settings: Tls) -> ssl.SSLSocket:
    return context(settings).wrap_socket(plain, server_hostname=host)


def context(settings: Tls) -> ssl.SSLContext:
    """The user has to mend files that are missing or hold no certificate; another try would not help."""
    try:
        return _context(settings)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"the certificates of ssl.* cannot be used: {error}") from error


def _context(settings: Tls) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=settings.ca_file, cadata=settings.ca_pem)
    if not settings.check_hostname or not settings.verify:
        made.check_hostname = False
    if not settings.verify:
        made.verify_mode = ssl.CERT_NONE
    with _file(settings.certificate_file, settings.certificate_pem) as certificate:
        if certificate is not None:
            with _file(settings.key_file, settings.key_pem) as key:
                made.load_cert_chain(certificate, key, settings.key_password)
    return made


@contextlib.contextmanager
def _file(path: str | None, text: str | None) -> Iterator[str | None]:
    """The ssl module reads client certificates from files alone."""
    if text is None:
        yield path
        return
    # 0600: a private key may be in it.
    handle, name = tempfile.mkstemp(suffix=".pem")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        yield name
    finally:
        os.unlink(name)
