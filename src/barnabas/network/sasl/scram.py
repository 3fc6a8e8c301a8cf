"""SCRAM-SHA-256 on the server's side (RFC 5802, 7677), without channel binding and without a socket.

`ScramServer` serves one authentication: `server_first` answers the client's first message, `server_final` its last.
Each mistake in received bytes and each wrong proof ends in the same error, which says nothing about the secret. The
server knows a verifier, from which the secret cannot be computed.

The proof is checked in the same time for each wrong one. The server's last message proves in turn that the server
knows the verifier.
"""

import base64
import hashlib
import hmac
import os
import re
from typing import Final, NamedTuple

from barnabas.errors import SaslAuthenticationFailed

__all__ = ["ITERATIONS", "MECHANISM", "MESSAGE_BYTES_MAX", "ScramServer", "Verifier", "make_verifier"]

MECHANISM: Final = "SCRAM-SHA-256"
ITERATIONS: Final = 4096
"""The fewest that RFC 7677 allows. More would protect a password that can be guessed, not a random secret."""
MESSAGE_BYTES_MAX: Final = 1024
"""A client's message has about 100 bytes."""
_NONCE_BYTES: Final = 24
_SALT_BYTES: Final = 16

_VALUE: Final = rb"[\x01-\x2b\x2d-\x7f]+"
_NAME: Final = rb"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_NONCE: Final = rb"[\x21-\x2b\x2d-\x7e]+"
_EXTENSIONS: Final = rb"(?:,[A-Za-z]=" + _VALUE + rb")*"
_CLIENT_FIRST: Final = re.compile(
    rb"n,,(?P<bare>n=(?P<name>" + _NAME + rb"),r=(?P<nonce>" + _NONCE + rb")" + _EXTENSIONS + rb")"
)
_CLIENT_FINAL: Final = re.compile(
    rb"(?P<without_proof>c=biws,r=(?P<nonce>" + _NONCE + rb")" + _EXTENSIONS + rb"),p=(?P<proof>[A-Za-z0-9+/]{43}=)"
)
"""`biws` is the base64 of `n,,`: the client has not bound the authentication to a channel."""


class Verifier(NamedTuple):
    """The part of a user's credential that a server needs."""

    username: str
    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


def make_verifier(username: str, password: str, *, salt: bytes | None = None, iterations: int = ITERATIONS) -> Verifier:
    """Returns the verifier of a password. This takes about 2 ms, as the iterations are meant to."""
    salt = os.urandom(_SALT_BYTES) if salt is None else salt
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)
    stored_key = hashlib.sha256(_hmac(salted, b"Client Key")).digest()
    return Verifier(username, salt, iterations, stored_key, _hmac(salted, b"Server Key"))


class ScramServer:
    """One authentication. Both methods raise SaslAuthenticationFailed, after which there is no second attempt."""

    __slots__ = ("_bare", "_first", "_nonce", "_verifier", "done")

    def __init__(self, verifier: Verifier, *, nonce: str | None = None) -> None:
        """`nonce` is the server's part of the nonce: random, except in tests with known answers."""
        self._verifier = verifier
        self._nonce = (nonce or base64.b64encode(os.urandom(_NONCE_BYTES)).decode()).encode()
        self._bare = b""
        self._first = b""
        self.done = False
        """Whether the client has proved that it knows the secret."""

    def server_first(self, message: bytes) -> bytes:
        """Returns the answer to the client's first message."""
        match = None if self._first or len(message) > MESSAGE_BYTES_MAX else _CLIENT_FIRST.fullmatch(message)
        if match is None or _unescaped(match["name"]) != self._verifier.username.encode():
            raise _failure()
        self._bare = match["bare"]
        self._nonce = match["nonce"] + self._nonce
        salt = base64.b64encode(self._verifier.salt)
        self._first = b"r=%b,s=%b,i=%d" % (self._nonce, salt, self._verifier.iterations)
        return self._first

    def server_final(self, message: bytes) -> bytes:
        """Returns the answer to the client's last message, whose proof is right."""
        first, self._first = self._first, b""
        match = None if not first or len(message) > MESSAGE_BYTES_MAX else _CLIENT_FINAL.fullmatch(message)
        if match is None or not hmac.compare_digest(match["nonce"], self._nonce):
            raise _failure()
        authentication = b",".join((self._bare, first, match["without_proof"]))
        signature = _hmac(self._verifier.stored_key, authentication)
        proof = base64.b64decode(match["proof"])
        if base64.b64encode(proof) != match["proof"]:  # two bits of the last letter are not part of the proof
            raise _failure()
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.sha256(client_key).digest(), self._verifier.stored_key):
            raise _failure()
        self.done = True
        return b"v=" + base64.b64encode(_hmac(self._verifier.server_key, authentication))


def _unescaped(name: bytes) -> bytes:
    return name.replace(b"=2C", b",").replace(b"=3D", b"=")


def _hmac(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, "sha256")


def _failure() -> SaslAuthenticationFailed:
    return SaslAuthenticationFailed(f"authentication failed: {MECHANISM} with wrong credentials")
