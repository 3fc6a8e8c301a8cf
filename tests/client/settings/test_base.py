"""All settings: spellings, Python objects, secrets, immutability."""

from collections.abc import Callable

import pytest

from barnabas.client.settings import ProducerSettings


@pytest.mark.parametrize(
    "make",
    [
        lambda: ProducerSettings(linger_ms=7),
        lambda: ProducerSettings({"linger.ms": 7}),
        lambda: ProducerSettings({"linger_ms": "7"}),
        lambda: ProducerSettings({"linger.ms": " 7 "}, acks=None),
        lambda: ProducerSettings(linger_ms=9).replace(linger_ms=7),
    ],
)
def test_spellings(make: Callable[[], ProducerSettings]) -> None:
    settings = make()
    assert settings.linger_ms == 7
    assert settings["linger.ms"] == 7
    assert list(settings.given) == ["linger.ms"]


def test_callables_pass_untouched() -> None:
    settings = ProducerSettings(key_serializer=str.encode, partitioner_class=min, interceptor_classes=[max])
    assert settings.key_serializer is str.encode
    assert settings.partitioner_class is min
    assert settings.interceptor_classes == (max,)
    assert ProducerSettings(partitioner_class="round_robin").partitioner_class == "round_robin"


def test_secrets_are_not_shown() -> None:
    settings = ProducerSettings(
        security_protocol="sasl_ssl", sasl_mechanism="plain", sasl_username="u", sasl_password=" geheim "
    )
    assert settings.sasl_password == " geheim "
    assert "geheim" not in repr(settings)
    assert "sasl.username=u" in repr(settings)
    assert settings.uses_tls
    assert settings.uses_sasl
    assert settings.sasl_mechanism == "PLAIN"


def test_settings_do_not_change() -> None:
    settings = ProducerSettings()
    with pytest.raises(AttributeError, match="linger_ms"):
        settings.linger_ms = 6
