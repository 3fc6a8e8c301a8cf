"""User and password as Java clients write them."""

import pytest

from barnabas.client.settings import AdminSettings
from barnabas.client.settings.jaas import parse_jaas
from barnabas.errors import UsageError

JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="al\\"ice" password=\'s3;cret\';'


def test_jaas_as_java_writes_it() -> None:
    settings = AdminSettings(security_protocol="SASL_PLAINTEXT", sasl_mechanism="SCRAM-SHA-512", sasl_jaas_config=JAAS)
    assert (settings.sasl_username, settings.sasl_password) == ('al"ice', "s3;cret")
    assert parse_jaas("PlainLoginModule required username=u password=p ;") == ("u", "p")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "com.sun.security.auth.module.Krb5LoginModule required;",
        'PlainLoginModule required username="geheim";',
        'PlainLoginModule required username="geheim" password="p"',
        'PlainLoginModule required username="geheim" password="p" more',
    ],
)
def test_jaas_of_another_form_is_refused_unseen(text: str) -> None:
    with pytest.raises(UsageError, match=r"give sasl\.username and sasl\.password instead") as caught:
        parse_jaas(text)
    assert "geheim" not in str(caught.value)
