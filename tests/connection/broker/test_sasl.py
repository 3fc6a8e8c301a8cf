"""SASL mechanisms: known answers of the RFCs and of Kafka's own classes, and brokers that lie."""

import base64
import hashlib
import hmac

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.client.settings import ProducerSettings
from barnabas.client.settings.network import network_client_settings
from barnabas.connection.broker.sasl import (
    ITERATIONS_MAX,
    Mechanism,
    OAuthBearer,
    Plain,
    ScramSha256,
    ScramSha512,
    _Scram,
)
from barnabas.errors import SaslAuthenticationFailed, UsageError


def mechanism_of(settings: ProducerSettings) -> Mechanism:
    make = network_client_settings(settings).connection.mechanism
    assert make is not None
    return make()


class ScramSha1(_Scram):
    """RFC 5802's own example; Kafka does not have this one."""

    name = "SCRAM-SHA-1"
    _hash = "sha1"


# client first, server first, client final, server final
RFC_5802 = (
    "n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL",
    "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
    "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
    "v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
)
RFC_7677 = (
    "n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
    "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
    "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
)
# from Kafka 4.4.0's ScramFormatter and ScramMessages
_KAFKA_FIRST = (
    "n,,n=al=3Dice=2C,r=fyko+d2lbbFgONRv9qkxdawL",
    "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=MDEyMzQ1Njc4OWFiY2RlZg==,i=8192",
)
KAFKA_256 = (
    *_KAFKA_FIRST,
    "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=BISIYYk/f+aZxwh4Bl6uyJXoWvLHaO9TE+GyCceMXpI=",
    "v=wfoMO9v53uSldTYZikU9EmfDPyW1ihRotIpmM4EP/7I=",
)
KAFKA_512_PROOF = "prAOTPIuu5Ehmd9dn2x+KhL6urOwhjJOt9PliCR0VTVtnuz9SpQwzJp6t7bd8Vx2w6/7w9STne3FtbXdxbAy/g=="
KAFKA_512 = (
    *_KAFKA_FIRST,
    "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=" + KAFKA_512_PROOF,
    "v=SKf5XqnzJ1j/YkheUtyZpBATCKOnLfVWCmNaJAnQ7jCYnIyswkoF0XUXTwwEF+n3gmKU7D3GFP5lS/rk9LlfXw==",
)
KAFKA_USER, KAFKA_PASSWORD = "al=ice,", "päss=w,rdⅨ"


@pytest.mark.parametrize(
    ("kind", "user", "password", "script"),
    [
        (ScramSha1, "user", "pencil", RFC_5802),
        (ScramSha256, "user", "pencil", RFC_7677),
        (ScramSha256, KAFKA_USER, KAFKA_PASSWORD, KAFKA_256),
        (ScramSha512, KAFKA_USER, KAFKA_PASSWORD, KAFKA_512),
    ],
)
def test_scram_known_answers(kind: type[_Scram], user: str, password: str, script: tuple[str, ...]) -> None:
    client_first, server_first, client_final, server_final = script
    scram = kind(user, password, nonce=client_first.partition("r=")[2])
    assert scram.next(None) == client_first.encode()
    assert scram.next(server_first.encode()) == client_final.encode()
    assert not scram.done
    assert scram.next(server_final.encode()) is None
    assert scram.done
    with pytest.raises(SaslAuthenticationFailed, match="spoke after the end"):
        scram.next(server_final.encode())


NONCE = "rOprNGfwEbeRWgbNEkqO"


def started() -> ScramSha256:
    scram = ScramSha256("user", "pencil", nonce=NONCE)
    scram.next(None)
    return scram


@pytest.mark.parametrize(
    ("server_first", "reason"),
    [
        (f"r=x{NONCE}y,s=c2FsdA==,i=4096", "not for this connection"),
        (f"r={NONCE},s=c2FsdA==,i=4096", "not for this connection"),
        (f"r={NONCE[:-1]},s=c2FsdA==,i=4096", "not for this connection"),
        (f"r={NONCE}y,s=c2FsdA==,i=4095", "4095 iterations"),
        (f"r={NONCE}y,s=c2FsdA==,i={ITERATIONS_MAX + 1}", f"{ITERATIONS_MAX + 1} iterations"),
        (f"r={NONCE}y,s=c2FsdA==,i=99999999999", "not one of SCRAM"),
        (f"r={NONCE}y,s=c2FsdA==,i=-1", "not one of SCRAM"),
        (f"r={NONCE}y,s=,i=4096", "salt is empty"),
        (f"r={NONCE}y,s=c2Fsd,i=4096", "broken base64"),
        (f"m=ext,r={NONCE}y,s=c2FsdA==,i=4096", "extension"),
        (f"r={NONCE}y,s=c2FsdA==", "not one of SCRAM"),
        (f"s=c2FsdA==,r={NONCE}y,i=4096", "not one of SCRAM"),
        ("", "not one of SCRAM"),
        ("e=unknown-user", "not one of SCRAM"),
        (f"r={NONCE}ü,s=c2FsdA==,i=4096", "not ASCII"),
    ],
)
def test_scram_refuses_a_broker_that_does_not_keep_to_it(server_first: str, reason: str) -> None:
    scram = started()
    with pytest.raises(SaslAuthenticationFailed, match=reason):
        scram.next(server_first.encode())
    assert not scram.done
    with pytest.raises(SaslAuthenticationFailed):
        scram.next(RFC_7677[1].encode())


@pytest.mark.parametrize(
    ("server_final", "reason"),
    [
        ("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95H4=", "signature is wrong"),
        ("v=", "signature is wrong"),
        ("e=invalid-proof", "it refused: invalid-proof"),
        ("", "not one of SCRAM"),
        ("v=6rriTRB,x", "not one of SCRAM"),
    ],
)
def test_scram_does_not_trust_a_broker_without_the_right_signature(server_final: str, reason: str) -> None:
    scram = started()
    scram.next(RFC_7677[1].encode())
    with pytest.raises(SaslAuthenticationFailed, match=reason):
        scram.next(server_final.encode())
    assert not scram.done


def test_scram_takes_extensions_that_are_optional() -> None:
    scram = started()
    assert scram.next(f"r={NONCE}y,s=c2FsdA==,i=4096,x=what=ever,yy=2".encode()) is not None


def test_scram_speaks_first_and_with_a_fresh_nonce() -> None:
    assert ScramSha256("u", "p").next(None) != ScramSha256("u", "p").next(None)
    with pytest.raises(SaslAuthenticationFailed, match="spoke first"):
        ScramSha256("u", "p").next(b"hello")


@settings(max_examples=20, deadline=None)
@given(st.text(max_size=20), st.text(max_size=20), st.binary(min_size=1, max_size=40), st.integers(4096, 5000))
def test_scram_agrees_with_a_server_written_from_the_rfc(user: str, password: str, salt: bytes, rounds: int) -> None:
    scram = ScramSha512(user, password)
    first = scram.next(None)
    assert first is not None
    bare = first.decode()[3:]
    name, nonce = bare[2:].split(",r=")
    assert name.replace("=2C", ",").replace("=3D", "=") == user
    server_first = f"r={nonce}more,s={base64.b64encode(salt).decode()},i={rounds}"
    final = scram.next(server_first.encode())
    assert final is not None
    without_proof, proof = final.decode().split(",p=")
    message = f"{bare},{server_first},{without_proof}".encode()
    salted = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, rounds)
    stored = hashlib.sha512(hmac.digest(salted, b"Client Key", "sha512")).digest()
    signature = hmac.digest(stored, message, "sha512")
    key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
    assert hashlib.sha512(key).digest() == stored
    answer = hmac.digest(hmac.digest(salted, b"Server Key", "sha512"), message, "sha512")
    assert scram.next(b"v=" + base64.b64encode(answer)) is None
    assert scram.done


def test_plain() -> None:
    plain = Plain("user", "pässword")
    assert plain.next(None) == "\0user\0pässword".encode()
    assert not plain.done
    assert plain.next(b"") is None
    assert plain.done
    with pytest.raises(UsageError, match="NUL"):
        Plain("a\0b", "c")


def test_oauthbearer() -> None:
    tokens = iter(["abc.DEF-123_~+/=="])
    bearer = OAuthBearer(lambda: next(tokens))
    assert bearer.next(None) == b"n,,\x01auth=Bearer abc.DEF-123_~+/==\x01\x01"
    assert bearer.next(b"") is None
    assert bearer.done


def test_oauthbearer_hears_why_it_was_refused() -> None:
    bearer = OAuthBearer(lambda: "token")
    bearer.next(None)
    assert bearer.next(b'{"status":"invalid_token"}') == b"\x01"
    assert not bearer.done
    with pytest.raises(SaslAuthenticationFailed, match="invalid_token"):
        bearer.next(b"")


@pytest.mark.parametrize("token", ["", "a b", "a\x01b", "ü", None])
def test_oauthbearer_sends_no_rubbish(token: str) -> None:
    with pytest.raises(UsageError, match="RFC 6750"):
        OAuthBearer(lambda: token).next(None)


@pytest.mark.parametrize(
    ("name", "kind"), [("PLAIN", Plain), ("SCRAM-SHA-256", ScramSha256), ("SCRAM-SHA-512", ScramSha512)]
)
def test_mechanism_by_settings(name: str, kind: type[Mechanism]) -> None:
    given = {"security.protocol": "SASL_SSL", "sasl.mechanism": name, "sasl.username": "u", "sasl.password": "p"}
    mechanism = mechanism_of(ProducerSettings({**given, "bootstrap.servers": "b:1"}))
    assert isinstance(mechanism, kind)
    assert mechanism.name == name


def test_oauthbearer_by_settings() -> None:
    given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    mechanism = mechanism_of(
        ProducerSettings({**given, "bootstrap.servers": "b:1"}, sasl_oauthbearer_token_provider=lambda: "t")
    )
    assert mechanism.next(None) == b"n,,\x01auth=Bearer t\x01\x01"
