"""Describes the operating system's errors, with hints at what to do."""

import errno
import os
import socket
from typing import Final

__all__ = ["describe", "hint_for"]

_HINTS = {
    errno.ECONNREFUSED: "nothing listens there; is the broker running? `barnabas serve` starts one",
    errno.ETIMEDOUT: "no answer; a firewall may drop the packets, or the address is wrong",
    errno.EHOSTUNREACH: "no route to that host from here",
    errno.ENETUNREACH: "no route to that network from here",
    errno.ECONNRESET: "no broker, perhaps, or a listener that wants TLS or SASL: set security.protocol",
    errno.EPIPE: "the other side closed the connection",
    errno.EACCES: "the system does not allow this connection",
    errno.EMFILE: "this process has too many open files (ulimit -n)",
}


_NO_TLS: Final = "that port does not speak TLS, it seems; without TLS, security.protocol is PLAINTEXT"
_TLS_REASONS: Final = {
    "WRONG_VERSION_NUMBER": _NO_TLS,
    "RECORD_LAYER_FAILURE": _NO_TLS,
    "UNEXPECTED_EOF_WHILE_READING": _NO_TLS,
    "CERTIFICATE_VERIFY_FAILED": "name the certificate's authority in ssl.truststore.location, a PEM file",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the broker wants to see a certificate: ssl.keystore.location",
}


def hint_for(error: BaseException, stage: str = "") -> str:
    """Returns a hint at what to do about an error of the operating system, or an empty string."""
    if stage == "tls":
        if "mismatch" in str(error):
            return "the certificate is for another name: connect by one that it carries"
        if isinstance(error, ConnectionError):
            return _NO_TLS
        return _TLS_REASONS.get(str(getattr(error, "reason", "")), "")
    if isinstance(error, socket.gaierror):
        return "the name does not resolve here; check its spelling, DNS or /etc/hosts"
    if isinstance(error, TimeoutError):
        return _HINTS[errno.ETIMEDOUT]
    if isinstance(error, OSError) and error.errno is not None:
        return _HINTS.get(error.errno, "")
    return ""


def describe(error: BaseException) -> str:
    """Returns the error's own text: `connection refused` for ConnectionRefusedError(111, ...)."""
    if isinstance(error, TimeoutError):
        return "timed out"
    reason = getattr(error, "reason", None)
    if isinstance(error, OSError) and isinstance(reason, str):  # of TLS, without the place in OpenSSL's source
        verified = getattr(error, "verify_message", "")
        return reason.replace("_", " ").lower() + (f": {verified}" if verified else "")
    if isinstance(error, ConnectionRefusedError) and error.errno:
        return os.strerror(error.errno)[0].lower() + os.strerror(error.errno)[1:]  # asyncio replaces the text
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[0].lower() + error.strerror[1:]
    return str(error) or type(error).__name__
