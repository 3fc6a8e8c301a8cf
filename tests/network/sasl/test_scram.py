"""SCRAM on the server's side: the RFC's example, our own client at the other end, and hostile bytes."""

import base64
import contextlib
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from barnabas.connection.broker.sasl import ScramSha256
from barnabas.errors import SaslAuthenticationFailed
from barnabas.network.sasl.scram import ITERATIONS, MESSAGE_BYTES_MAX, ScramServer, make_verifier

# RFC 7677, section 3
NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
RFC_VERIFIER = make_verifier("user", "pencil", salt=base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="))

SECRET = bytes(range(32)).hex()
VERIFIER = make_verifier("broker", SECRET)


def rfc_server() -> ScramServer:
    return ScramServer(RFC_VERIFIER, nonce=NONCE)


def begun() -> ScramServer:
    server = rfc_server()
    server.server_first(CLIENT_FIRST)
    return server


def failure_of(call: Callable[[], object]) -> str:
    with pytest.raises(SaslAuthenticationFailed) as raised:
        call()
    return str(raised.value)


ONE_ERROR = "authentication failed: SCRAM-SHA-256 with wrong credentials"


def test_the_example_of_the_rfc() -> None:
    server = rfc_server()
    assert server.server_first(CLIENT_FIRST) == SERVER_FIRST
    assert not server.done
    assert server.server_final(CLIENT_FINAL) == SERVER_FINAL
    assert server.done


@pytest.mark.parametrize("username", ["broker", "a,b=c", "=2C", "Br"])
def test_our_own_client_and_the_server_trust_each_other(username: str) -> None:
    server = ScramServer(make_verifier(username, SECRET))
    client = ScramSha256(username, SECRET)
    first = client.next(None)
    assert first is not None
    final = client.next(server.server_first(first))
    assert final is not None
    assert client.next(server.server_final(final)) is None
    assert client.done
    assert server.done


def test_a_client_with_another_secret_is_refused() -> None:
    server, client = ScramServer(VERIFIER), ScramSha256("broker", bytes(32).hex())
    final = client.next(server.server_first(client.next(None) or b""))
    assert failure_of(lambda: server.server_final(final or b"")) == ONE_ERROR
    assert not server.done


def test_a_server_that_does_not_know_the_secret_is_noticed() -> None:
    """An impostor that lets every client in: it cannot make the signature."""
    server, client = ScramServer(VERIFIER._replace(server_key=bytes(32))), ScramSha256("broker", SECRET)
    final = client.next(server.server_first(client.next(None) or b""))
    forged = server.server_final(final or b"")
    with pytest.raises(SaslAuthenticationFailed, match="its signature is wrong"):
        client.next(forged)
    assert not client.done


def test_every_nonce_and_salt_is_new() -> None:
    assert make_verifier("broker", SECRET).salt != make_verifier("broker", SECRET).salt
    assert len({ScramServer(VERIFIER).server_first(b"n,,n=broker,r=abc") for _ in range(20)}) == 20
    assert VERIFIER.iterations == ITERATIONS == 4096
    assert len(VERIFIER.salt) == 16


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,n=other,r=abc",
        b"y,,n=user,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"n,a=user,n=user,r=abc",
        b"n,,m=x,n=user,r=abc",
        b"n,,n=user,r=",
        b"n,,n=user",
        b"n,,n=us=er,r=abc",
        b"n,,n=user,r=a b",
        b"n,,n=user,r=abc,",
        b"n,,n=user,r=abc\n",
        b"n,,n=user,r=" + b"a" * MESSAGE_BYTES_MAX,
        CLIENT_FINAL,
    ],
)
def test_a_bad_first_message_has_one_error(message: bytes) -> None:
    assert failure_of(lambda: rfc_server().server_first(message)) == ONE_ERROR


def test_extensions_are_skipped_and_count_for_the_proof() -> None:
    server = rfc_server()
    assert server.server_first(CLIENT_FIRST + b",x=y") == SERVER_FIRST
    assert failure_of(lambda: server.server_final(CLIENT_FINAL)) == ONE_ERROR


@pytest.mark.parametrize(
    "message",
    [
        b"",
        CLIENT_FIRST,
        CLIENT_FINAL[:-1],
        CLIENT_FINAL + b"=",
        CLIENT_FINAL + b"\n",
        CLIENT_FINAL.replace(b"c=biws", b"c=eSws"),
        CLIENT_FINAL.replace(b"r=rOpr", b"r=rOpR"),
        CLIENT_FINAL.replace(b"$k0", b"$k1"),
        CLIENT_FINAL.replace(b"p=dHz", b"p=dHy"),
        CLIENT_FINAL.replace(b",p=", b",x=y,p="),
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=" + b"A" * 43 + b"=",
    ],
)
def test_a_bad_last_message_has_the_same_error(message: bytes) -> None:
    server = begun()
    assert failure_of(lambda: server.server_final(message)) == ONE_ERROR
    assert not server.done
    assert failure_of(lambda: server.server_final(CLIENT_FINAL)) == ONE_ERROR, "there is no second attempt"


def test_messages_out_of_order_are_refused() -> None:
    assert failure_of(lambda: rfc_server().server_final(CLIENT_FINAL)) == ONE_ERROR
    assert failure_of(lambda: begun().server_first(CLIENT_FIRST)) == ONE_ERROR


def test_a_proof_is_for_one_connection() -> None:
    server = ScramServer(RFC_VERIFIER)
    server.server_first(CLIENT_FIRST)
    assert failure_of(lambda: server.server_final(CLIENT_FINAL)) == ONE_ERROR


PIECES = st.sampled_from([b"n", b"=", b",", b"r", b"c", b"p", b"biws", b"=2C", b"=3D", b"user", b"\0", b"\xff", b"A"])
HOSTILE = st.one_of(st.binary(max_size=200), st.lists(PIECES, max_size=40).map(b"".join))


@given(HOSTILE)
@settings(deadline=None, max_examples=300)
def test_hostile_bytes_do_no_more_than_fail(message: bytes) -> None:
    with contextlib.suppress(SaslAuthenticationFailed):
        assert rfc_server().server_first(message).startswith(b"r=")
    assert failure_of(lambda: begun().server_final(message)) == ONE_ERROR


@given(st.integers(0, len(CLIENT_FINAL) - 1), st.integers(1, 255))
@example(CLIENT_FINAL.index(b"VQ=") + 1, ord("Q") ^ ord("R"))
@settings(deadline=None, max_examples=300)
def test_no_changed_byte_of_the_last_message_gets_through(position: int, change: int) -> None:
    changed = bytearray(CLIENT_FINAL)
    changed[position] ^= change
    assert failure_of(lambda: begun().server_final(bytes(changed))) == ONE_ERROR
