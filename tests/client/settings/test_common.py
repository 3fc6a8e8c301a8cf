"""Settings that all clients have."""

from barnabas.client.settings import ConsumerSettings


def test_security_without_its_protocol_is_told() -> None:
    (warning,) = ConsumerSettings(sasl_username="u", ssl_key_password="p").warnings
    assert warning == "security.protocol is PLAINTEXT, so sasl.username, ssl.key.password has no effect"
