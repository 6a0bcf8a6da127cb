"""SASL on a new connection: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER with client credentials."""

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Callable, Iterator

from millstream.client.errors import ConnectionFailedError, NotAuthorizedError, error_name
from millstream.client.wire import requests
from millstream.client.wire.settings import Sasl

Request = Callable[[int, int, bytes], memoryview]
Exchange = Iterator[bytes]

_SCRAM_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISMS = ("PLAIN", *_SCRAM_HASHES, "OAUTHBEARER")
_LEAST_ITERATIONS = 4096
_TOKEN_TIMEOUT_S = 20.0


def authenticate(request: Request, settings: Sasl) -> None:
    body = requests.sasl_handshake_request(settings.mechanism)
    reply = request(requests.SASL_HANDSHAKE, requests.SASL_HANDSHAKE_VERSION, body)
    error, offered = requests.read_sasl_handshake(reply)
    if error:
        raise NotAuthorizedError(
            f"the broker does not take SASL mechanism {settings.mechanism} ({error_name(error)}); "
            f"it offers {', '.join(offered) or 'none'}"
        )

    def exchange(token: bytes) -> bytes:
        body = requests.sasl_authenticate_request(token)
        reply = request(requests.SASL_AUTHENTICATE, requests.SASL_AUTHENTICATE_VERSION, body)
        error, message, answer = requests.read_sasl_authenticate(reply)
        if error:
            raise NotAuthorizedError(
                f"the broker refused user {settings.username!r}: {message or error_name(error)}"
            )
        return answer

    if settings.mechanism == "PLAIN":
        exchange(f"\0{settings.username}\0{settings.password}".encode())
    elif settings.mechanism == "OAUTHBEARER":
        exchange(f"n,,\x01auth=Bearer {_token(settings)}\x01\x01".encode())
    else:
        _scram(exchange, settings, secrets.token_urlsafe(24))


def _scram(exchange: Callable[[bytes], bytes], settings: Sasl, nonce: str) -> None:
    """RFC 5802. The broker proves that it knows the password too."""
    name = _SCRAM_HASHES[settings.mechanism]
    user = settings.username.replace("=", "=3D").replace(",", "=2C")
    first = f"n={user},r={nonce}"
    challenge = exchange(f"n,,{first}".encode()).decode()
    fields = _fields(challenge)
    iterations = int(fields.get("i", "0"))
    if not fields.get("r", "").startswith(nonce) or iterations < _LEAST_ITERATIONS:
        raise NotAuthorizedError(f"the broker's {settings.mechanism} challenge is not acceptable")
    salted = hashlib.pbkdf2_hmac(
        name, settings.password.encode(), base64.b64decode(fields.get("s", "")), iterations
    )
    client_key = hmac.digest(salted, b"Client Key", name)
    final = f"c=biws,r={fields['r']}"
    signed = f"{first},{challenge},{final}".encode()
    signature = hmac.digest(hashlib.new(name, client_key).digest(), signed, name)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    answer = exchange(f"{final},p={base64.b64encode(proof).decode()}".encode()).decode()
    expected = hmac.digest(hmac.digest(salted, b"Server Key", name), signed, name)
    if not hmac.compare_digest(base64.b64decode(_fields(answer).get("v", "")), expected):
        raise NotAuthorizedError("the broker does not know the user's password; is it the right broker?")


def _fields(message: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in message.split(",") if "=" in part)


def _token(settings: Sasl) -> str:
    """An access token for client credentials, from the provider's token endpoint."""
    import urllib.error
    import urllib.parse
    import urllib.request

    form = {"grant_type": "client_credentials"}
    if settings.scope:
        form["scope"] = settings.scope
    credentials = base64.b64encode(f"{settings.username}:{settings.password}".encode()).decode()
    call = urllib.request.Request(  # noqa: S310 - the options accept http and https alone
        settings.token_endpoint,
        data=urllib.parse.urlencode(form).encode(),
        headers={"Authorization": f"Basic {credentials}", "Accept": "application/json"},
    )
    try:
        with urllib.request.urlopen(call, timeout=_TOKEN_TIMEOUT_S) as answer:  # noqa: S310
            return str(json.load(answer)["access_token"])
    except urllib.error.HTTPError as error:
        raise NotAuthorizedError(f"{settings.token_endpoint} gave no token: HTTP {error.code}") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConnectionFailedError(f"{settings.token_endpoint} gave no token: {error}") from None
