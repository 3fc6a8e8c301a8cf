"""SASL on the client's side: PLAIN (RFC 4616), SCRAM-SHA-256 and -512 (RFC 5802, 7677), OAUTHBEARER (RFC 7628).

`next(None)` returns a mechanism's first message, and `next(answer)` the message after each answer of the broker, until
the mechanism is `done`. A mechanism serves one authentication. Failures are SaslAuthenticationFailed and never show a
secret.

Passwords are used as they are, without SASLprep: Kafka stores them so, and no client of Kafka prepares them. Users
whose passwords SASLprep changes could not log in with it.
"""

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from typing import ClassVar, Final, Protocol

from barnabas.errors import SaslAuthenticationFailed, UsageError

__all__ = [
    "ITERATIONS_MAX",
    "ITERATIONS_MIN",
    "Mechanism",
    "OAuthBearer",
    "Plain",
    "ScramSha256",
    "ScramSha512",
]

ITERATIONS_MIN: Final = 4096
"""The fewest iterations that are accepted: with fewer a broker, or an impostor, could guess the password."""
ITERATIONS_MAX: Final = 1_000_000
"""The most iterations that are accepted: more would keep this thread busy for seconds. Kafka itself allows 16,384."""

_VALUE: Final = r"[\x01-\x2b\x2d-\x7f]+"
_BASE64: Final = r"[A-Za-z0-9+/]*={0,2}"
_SERVER_FIRST: Final = re.compile(
    rf"(?:m=(?P<mandatory>{_VALUE}),)?r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+),s=(?P<salt>{_BASE64}),"
    rf"i=(?P<iterations>[0-9]{{1,10}})(?:,[A-Za-z]+={_VALUE})*"
)
_SERVER_FINAL: Final = re.compile(rf"(?:e=(?P<error>{_VALUE})|v=(?P<signature>{_BASE64}))(?:,[A-Za-z]+={_VALUE})*")
_TOKEN: Final = re.compile(r"[-_~+/.a-zA-Z0-9]+=*")


class Mechanism(Protocol):
    """One authentication by one mechanism."""

    name: ClassVar[str]
    done: bool

    def next(self, challenge: bytes | None) -> bytes | None:
        """Returns what to send next; None when the broker's last message ended the exchange well."""


class Plain:
    """Sends user and password unencrypted: for TLS connections or trusted networks only."""

    name: ClassVar[str] = "PLAIN"

    def __init__(self, username: str, password: str) -> None:
        if "\0" in username or "\0" in password:
            raise UsageError("sasl.username and sasl.password cannot contain the character NUL with PLAIN")
        self._message = f"\0{username}\0{password}".encode()
        self._sent = False
        self.done = False

    def next(self, challenge: bytes | None) -> bytes | None:
        if not self._sent:
            self._sent = True
            return self._message
        # Kafka's answer is empty and means yes; a refusal comes as an error of SaslAuthenticate
        self.done = True
        return None


class OAuthBearer:
    """Sends a token that identifies the client. `provider` returns the token and is called once."""

    name: ClassVar[str] = "OAUTHBEARER"

    def __init__(self, provider: Callable[[], str]) -> None:
        self._provider = provider
        self._sent = False
        self._refusal: str | None = None
        self.done = False

    def next(self, challenge: bytes | None) -> bytes | None:
        if not self._sent:
            self._sent = True
            token = self._provider()
            if not (isinstance(token, str) and _TOKEN.fullmatch(token)):
                raise UsageError("sasl.oauthbearer.token.provider did not return a token of the letters of RFC 6750")
            return f"n,,\x01auth=Bearer {token}\x01\x01".encode()
        if self._refusal is not None:
            raise SaslAuthenticationFailed(f"the broker refused the token: {self._refusal}")
        if challenge:
            # the broker sends the reason as a message, and its error code after this answer
            self._refusal = challenge.decode("utf-8", "replace")[:1000]
            return b"\x01"
        self.done = True
        return None


class _Scram:
    """Proves that the client knows the password without sending it, and requires the same proof of the broker."""

    name: ClassVar[str]
    _hash: ClassVar[str]

    def __init__(self, username: str, password: str, *, nonce: str | None = None) -> None:
        """Prepares the first message. The nonce is random; tests with known answers pass their own `nonce`."""
        self._password = password
        self._nonce = nonce if nonce is not None else secrets.token_urlsafe(24)
        escaped = username.replace("=", "=3D").replace(",", "=2C")
        self._first = f"n={escaped},r={self._nonce}"
        self._step = self._begin
        self._expected_signature = b""
        self.done = False

    def next(self, challenge: bytes | None) -> bytes | None:
        return self._step(challenge or b"")

    def _begin(self, challenge: bytes) -> bytes | None:
        if challenge:
            raise self._failure("the broker spoke first")
        self._step = self._prove
        return f"n,,{self._first}".encode()

    def _prove(self, challenge: bytes) -> bytes | None:
        server_first = self._text(challenge)
        salt, iterations, nonce = self._parse_first(server_first)
        final = f"c=biws,r={nonce}"
        authentication = f"{self._first},{server_first},{final}".encode()
        salted = hashlib.pbkdf2_hmac(self._hash, self._password.encode(), salt, iterations)
        client_key = self._hmac(salted, b"Client Key")
        stored_key = hashlib.new(self._hash, client_key).digest()
        proof = _xor(client_key, self._hmac(stored_key, authentication))
        self._expected_signature = self._hmac(self._hmac(salted, b"Server Key"), authentication)
        self._step = self._verify
        return f"{final},p={base64.b64encode(proof).decode()}".encode()

    def _verify(self, challenge: bytes) -> bytes | None:
        match = _SERVER_FINAL.fullmatch(self._text(challenge))
        if match is None:
            raise self._failure("its last message is not one of SCRAM")
        if match["error"] is not None:
            raise self._failure(f"it refused: {match['error']}")
        if not hmac.compare_digest(self._decoded(match["signature"]), self._expected_signature):
            raise self._failure("its signature is wrong: it does not know the password, and may not be who it claims")
        self._step = self._ended
        self.done = True
        return None

    def _ended(self, challenge: bytes) -> bytes | None:
        raise self._failure("it spoke after the end")

    def _parse_first(self, text: str) -> tuple[bytes, int, str]:
        match = _SERVER_FIRST.fullmatch(text)
        if match is None:
            raise self._failure("its first message is not one of SCRAM")
        if match["mandatory"] is not None:
            raise self._failure("it asks for an extension that is not known here")
        nonce = match["nonce"]
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise self._failure("its nonce does not continue ours: the message is not for this connection")
        iterations = int(match["iterations"])
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise self._failure(f"it asks for {iterations} iterations, not {ITERATIONS_MIN} to {ITERATIONS_MAX}")
        salt = self._decoded(match["salt"])
        if not salt:
            raise self._failure("its salt is empty")
        return salt, iterations, nonce

    def _text(self, challenge: bytes) -> str:
        try:
            return challenge.decode("ascii")
        except UnicodeDecodeError:
            raise self._failure("its message is not ASCII") from None

    def _decoded(self, text: str) -> bytes:
        try:
            return base64.b64decode(text, validate=True)
        except binascii.Error:
            raise self._failure("its message holds broken base64") from None

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash)

    def _failure(self, reason: str) -> SaslAuthenticationFailed:
        self._step = self._ended
        return SaslAuthenticationFailed(f"{self.name} with the broker failed: {reason}")


class ScramSha256(_Scram):
    name = "SCRAM-SHA-256"
    _hash = "sha256"


class ScramSha512(_Scram):
    name = "SCRAM-SHA-512"
    _hash = "sha512"


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))
