"""The table of APIs: keys, versions, classes, headers."""

import pytest

from barnabas.protocol import apis
from barnabas.protocol.apis import SERVED, ApiKey


@pytest.mark.parametrize("key", SERVED, ids=lambda key: ApiKey(key).name)
def test_a_served_api_has_messages_of_its_versions(key: int) -> None:
    served = SERVED[key]
    assert served.first <= served.last
    for cls in apis.message_classes(key):
        assert key == cls.API_KEY
        assert served.first >= cls.FIRST_VERSION
        assert served.last <= cls.LAST_VERSION
    request, response = apis.message_classes(key)
    assert request.__name__.removesuffix("Request") == response.__name__.removesuffix("Response")
    assert ApiKey(key).name.replace("_", "").lower() == request.__name__.removesuffix("Request").lower()


def test_an_api_that_nobody_has() -> None:
    with pytest.raises(KeyError):
        apis.message_classes(9999)


@pytest.mark.parametrize(
    ("key", "version", "flexible", "request_header", "response_header"),
    [
        (ApiKey.PRODUCE, 8, False, 1, 0),
        (ApiKey.PRODUCE, 9, True, 2, 1),
        (ApiKey.METADATA, 8, False, 1, 0),
        (ApiKey.METADATA, 9, True, 2, 1),
        (ApiKey.API_VERSIONS, 2, False, 1, 0),
        (ApiKey.API_VERSIONS, 3, True, 2, 0),
        (ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, True, 2, 1),
    ],
)
def test_headers_are_kafkas(
    key: ApiKey, version: int, flexible: bool, request_header: int, response_header: int
) -> None:
    assert apis.is_flexible(key, version) is flexible
    assert apis.request_header_version(key, version) == request_header
    assert apis.response_header_version(key, version) == response_header
