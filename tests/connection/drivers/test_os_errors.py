"""The operating system's errors in words, with hints."""

import errno
import socket
import ssl

import pytest

from barnabas.connection.drivers.os_errors import describe, hint_for


@pytest.mark.parametrize(
    ("error", "text", "hint"),
    [
        (
            ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed"),
            "connection refused",
            "nothing listens there",
        ),
        (OSError(errno.EHOSTUNREACH, "No route to host"), "no route to host", "no route to that host from here"),
        (TimeoutError(), "timed out", "a firewall may drop the packets"),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "name or service", "check its spelling"),
        (OSError("said by nobody"), "said by nobody", ""),
        (OSError(), "OSError", ""),
    ],
)
def test_errors_of_connections(error: OSError, text: str, hint: str) -> None:
    assert describe(error).startswith(text)
    assert hint in hint_for(error)
    assert bool(hint_for(error)) is bool(hint)


def test_errors_of_tls() -> None:
    error = ssl.SSLCertVerificationError()
    error.reason, error.verify_message = "CERTIFICATE_VERIFY_FAILED", "self-signed certificate"
    assert describe(error) == "certificate verify failed: self-signed certificate"
    assert "ssl.truststore.location" in hint_for(error, "tls")
    assert "does not speak TLS" in hint_for(ConnectionResetError(errno.ECONNRESET, "reset"), "tls")
    assert "security.protocol" in hint_for(ConnectionResetError(errno.ECONNRESET, "reset"), "tcp")
    mismatch = ssl.SSLCertVerificationError("Hostname mismatch, certificate is not valid for 'x'")
    assert "connect by one that it carries" in hint_for(mismatch, "tls")
    assert hint_for(ssl.SSLError(), "tls") == ""
