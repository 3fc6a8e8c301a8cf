"""Kafka's rules for names, in Kafka's words."""

import pytest

from barnabas.errors import InvalidTopic
from barnabas.metadata.topic_names import validate_topic_name


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "__consumer_offsets", "x" * 249, "...", "-"])
def test_good_names(name: str) -> None:
    validate_topic_name(name)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("x" * 250, f"the length of '{'x' * 250}' is longer than the max allowed length 249"),
        ("bad!", "'bad!' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("é", "'é' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("../x", "'../x' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("a\n", "'a\n' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
    ],
)
def test_bad_names(name: str, reason: str) -> None:
    with pytest.raises(InvalidTopic) as error:
        validate_topic_name(name)
    assert error.value.message == f"Topic name is invalid: {reason}"
