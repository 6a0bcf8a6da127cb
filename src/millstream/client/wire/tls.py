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
    """A TLS context. Missing or invalid files raise an error that is not retriable: the user has to fix them."""
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
    """A path to the PEM: the ssl module reads client certificates only from files, so a text gets a temporary one."""
    if text is None:
        yield path
        return
    # mkstemp creates the file with mode 0600; it may hold a private key.
    handle, name = tempfile.mkstemp(suffix=".pem")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        yield name
    finally:
        os.unlink(name)
