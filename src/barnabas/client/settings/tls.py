"""Makes the TLS context of a client's settings."""

import os
from typing import TYPE_CHECKING

from barnabas.client.settings.common import CommonSettings
from barnabas.errors import UsageError

if TYPE_CHECKING:  # clients without TLS need not wait for its import
    import ssl

__all__ = ["ssl_context"]


def ssl_context(settings: CommonSettings) -> "ssl.SSLContext | None":
    """Returns the context for connections, None for plain TCP. Raises UsageError for files that fail to load."""
    if not settings.uses_tls:
        return None
    import ssl

    if settings.ssl_context is not None:
        given: ssl.SSLContext = settings.ssl_context
        return given
    context = ssl.create_default_context(
        cafile=_file("ssl.truststore.location", settings.ssl_truststore_location),
        cadata=settings.ssl_truststore_certificates,
    )
    if not settings.ssl_endpoint_identification_algorithm:
        context.check_hostname = False
    versions = settings.ssl_enabled_protocols
    context.minimum_version = ssl.TLSVersion.TLSv1_2 if "TLSv1.2" in versions else ssl.TLSVersion.TLSv1_3
    context.maximum_version = ssl.TLSVersion.TLSv1_3 if "TLSv1.3" in versions else ssl.TLSVersion.TLSv1_2
    try:
        if settings.ssl_cipher_suites:
            context.set_ciphers(":".join(settings.ssl_cipher_suites))
        _load_own(context, settings)
    except (OSError, ValueError) as error:
        raise UsageError(f"TLS cannot be set up as ssl.* says: {error}") from None
    return context


def _file(name: str, path: str | None) -> str | None:
    if path is not None and not os.path.isfile(path):
        raise UsageError(f"{name}={path} is no file")
    return path


def _load_own(context: "ssl.SSLContext", settings: CommonSettings) -> None:
    """Loads the client's own certificate and key, if it has one."""
    password = settings.ssl_key_password
    location = _file("ssl.keystore.location", settings.ssl_keystore_location)
    if location is not None:
        context.load_cert_chain(location, password=password)
        return
    chain, key = settings.ssl_keystore_certificate_chain, settings.ssl_keystore_key
    if chain is None and key is None:
        return
    if chain is None or key is None:
        raise UsageError("ssl.keystore.certificate.chain and ssl.keystore.key belong together; one is missing")
    import tempfile

    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:  # the ssl module reads files only; 0600
        file.write(f"{chain}\n{key}\n")
        file.flush()
        context.load_cert_chain(file.name, password=password)
