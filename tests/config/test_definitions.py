"""A setting's text becomes a value, or a sentence in Kafka's words."""

import pytest

from barnabas.config.definitions import ConfigType, OneOf, Setting, at_least, between, nearest
from barnabas.errors import InvalidConfig


def setting(kind: ConfigType, rule: object = None) -> Setting:
    return Setting("x", kind, None, "doc", rule)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (ConfigType.INT, " 12 ", 12),
        (ConfigType.INT, "-2147483648", -(2**31)),
        (ConfigType.INT, "+7", 7),
        (ConfigType.LONG, "9223372036854775807", 2**63 - 1),
        (ConfigType.SHORT, "3", 3),
        (ConfigType.BOOLEAN, "TRUE", True),
        (ConfigType.BOOLEAN, " false", False),
        (ConfigType.DOUBLE, "0.5", 0.5),
        (ConfigType.LIST, "a, b ,c", ("a", "b", "c")),
        (ConfigType.LIST, "", ()),
        (ConfigType.STRING, " text ", "text"),
    ],
)
def test_good_texts(kind: ConfigType, text: str, value: object) -> None:
    assert setting(kind).parse(text) == value


@pytest.mark.parametrize(
    ("kind", "text", "sentence"),
    [
        (ConfigType.INT, "abc", "Invalid value abc for configuration x: Not a number of type INT"),
        (ConfigType.INT, "2147483648", "Invalid value 2147483648 for configuration x: Not a number of type INT"),
        (ConfigType.INT, "1_000", "Invalid value 1_000 for configuration x: Not a number of type INT"),
        (ConfigType.INT, "٣", "Invalid value ٣ for configuration x: Not a number of type INT"),
        (ConfigType.SHORT, "40000", "Invalid value 40000 for configuration x: Not a number of type SHORT"),
        (ConfigType.LONG, "", "Invalid value  for configuration x: Not a number of type LONG"),
        (ConfigType.BOOLEAN, "yes", "Invalid value yes for configuration x: Expected value to be either true or false"),
        (ConfigType.DOUBLE, "half", "Invalid value half for configuration x: Not a number of type DOUBLE"),
    ],
)
def test_bad_texts(kind: ConfigType, text: str, sentence: str) -> None:
    with pytest.raises(InvalidConfig) as error:
        setting(kind).parse(text)
    assert error.value.message == sentence


def test_rules_speak_kafkas_sentences() -> None:
    for rule, text, sentence in (
        (at_least(14), "13", "Value must be at least 14"),
        (between(0, 1), "2", "Value must be no more than 1"),
    ):
        with pytest.raises(InvalidConfig, match=sentence):
            setting(ConfigType.INT, rule).parse(text)
    with pytest.raises(InvalidConfig) as error:
        setting(ConfigType.LIST, OneOf("compact", "delete")).parse("delete,foo")
    assert error.value.message == "Invalid value foo for configuration x: String must be one of: compact, delete"


def test_secrets_are_never_shown() -> None:
    with pytest.raises(InvalidConfig) as error:
        setting(ConfigType.PASSWORD, OneOf("open")).parse("sesame")
    assert "sesame" not in error.value.message
    assert setting(ConfigType.PASSWORD).sensitive


@pytest.mark.parametrize(
    ("value", "text"), [(True, "true"), (("a", "b"), "a,b"), ((), ""), (None, None), (0.5, "0.5"), (-1, "-1")]
)
def test_values_are_shown_as_kafka_shows_them(value: object, text: str | None) -> None:
    assert setting(ConfigType.STRING).format(value) == text  # type: ignore[arg-type]


def test_rules_in_words() -> None:
    assert str(at_least(1)) == "[1,...]"
    assert str(between(0, 1)) == "[0,...,1]"
    assert str(OneOf("a", "b")) == "[a, b]"


def test_nearest_name() -> None:
    assert nearest("log.segment.byte", ["log.segment.bytes", "log.dirs"]) == "log.segment.bytes"
    assert nearest("qqq", ["log.segment.bytes"]) is None
