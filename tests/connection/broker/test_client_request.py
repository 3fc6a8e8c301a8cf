"""The frames of requests, the headers of responses, and the version that both sides speak."""

import pytest

from barnabas.connection.broker.client_request import (
    ClientRequest,
    body_of,
    choose_version,
    client_id_field,
    request_frame,
)
from barnabas.errors import UnsupportedVersion
from barnabas.protocol.codec import MalformedMessage, decode
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.produce import ProduceRequest

BROKER = "broker:9092"


@pytest.mark.parametrize(("version", "tags"), [(3, b""), (4, b"\0")])
def test_a_frame_has_a_header_and_a_body(version: int, tags: bytes) -> None:
    frame = bytes(request_frame(HeartbeatRequest(group_id="g", member_id="m"), version, 7, client_id_field("é")))
    header = b"\0\x0c" + version.to_bytes(2, "big") + b"\0\0\0\x07" + b"\0\x02\xc3\xa9" + tags
    assert frame[:4] == (len(frame) - 4).to_bytes(4, "big")
    assert frame[4:].startswith(header)
    request, end = decode(HeartbeatRequest, version, frame, 4 + len(header))
    assert (request.group_id, request.member_id, end) == ("g", "m", len(frame))


def test_the_body_of_a_response_comes_behind_its_header() -> None:
    heartbeat = HeartbeatRequest.API_KEY
    assert body_of(heartbeat, 3, b"....body", 0) == (3, 4)
    assert body_of(heartbeat, 4, b"....\0body", 0) == (4, 5)
    two_tags = b"\x02" + b"\x01\x03abc" + b"\x09\x00"
    assert body_of(heartbeat, 4, b"...." + two_tags + b"body", 0) == (4, 4 + len(two_tags))
    with pytest.raises(MalformedMessage, match="cut off"):
        body_of(heartbeat, 4, b"....\x02\x01", 0)


def test_a_refusal_of_the_version_is_read_in_version_0() -> None:
    """A broker that does not know the version of ApiVersions answers in the only one that every client reads."""
    assert body_of(ApiVersionsRequest.API_KEY, 4, b"....\x00\x23", 0) == (0, 4)
    assert body_of(ApiVersionsRequest.API_KEY, 4, b"....\x00\x00", 0) == (4, 4)


def test_the_newest_version_that_both_speak_is_taken() -> None:
    newest = HeartbeatRequest.LAST_VERSION
    for served, at_most, version in (((0, 99), None, newest), ((0, 2), None, 2), ((0, 99), 1, 1), ((2, 2), 3, 2)):
        assert choose_version({12: served}, HeartbeatRequest, BROKER, at_most=at_most) == version
    with pytest.raises(UnsupportedVersion, match=r"^broker broker:9092 does not serve Heartbeat$"):
        choose_version({}, HeartbeatRequest, BROKER)
    with pytest.raises(UnsupportedVersion, match="serves Heartbeat v90 to v99, this client v0 to v"):
        choose_version({12: (90, 99)}, HeartbeatRequest, BROKER)
    with pytest.raises(UnsupportedVersion, match=r"serves Heartbeat v3 to v4, this client v0 to v2"):
        choose_version({12: (3, 4)}, HeartbeatRequest, BROKER, at_most=2)


def test_a_class_of_requests_needs_a_way_to_write_one() -> None:
    with pytest.raises(AssertionError, match="ProduceRequest needs build or encode"):
        ClientRequest(ProduceRequest, lambda response, error: None)
    assert ClientRequest(ProduceRequest, lambda response, error: None, encode=lambda version: []).name == "Produce"
    request = HeartbeatRequest(group_id="g")
    build = ClientRequest(request, lambda response, error: None).build
    assert build is not None
    assert build(0) is request
