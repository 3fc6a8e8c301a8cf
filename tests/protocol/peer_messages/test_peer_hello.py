"""The bytes of PeerHello, which every later release must be able to read."""

from barnabas.protocol.apis import ApiKey, is_flexible, message_classes
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.peer_messages.peer_hello import PeerHelloRequest, PeerHelloResponse

REQUEST = PeerHelloRequest(cluster_id="c", node_id=1, broker_epoch=2, release="0.1.0", first_level=3, last_level=4)
REQUEST_BYTES = bytes.fromhex("02 63 00000001 0000000000000002 06 302e312e30 0003 0004 00")


def test_the_request() -> None:
    assert encode(REQUEST, 0) == REQUEST_BYTES
    assert decode(PeerHelloRequest, 0, REQUEST_BYTES) == (REQUEST, len(REQUEST_BYTES))


def test_the_response() -> None:
    response = PeerHelloResponse(error_code=104, error_message="no", cluster_id="c", node_id=1, release="0.1.0")
    data = bytes.fromhex("0068 03 6e6f 02 63 00000001 ffffffffffffffff 06 302e312e30 0000 0000 00")
    assert encode(response, 0) == data
    assert decode(PeerHelloResponse, 0, data) == (response, len(data))


def test_fields_of_a_later_release_are_skipped() -> None:
    later = REQUEST_BYTES[:-1] + bytes.fromhex("01 63 03 616263")
    assert decode(PeerHelloRequest, 0, later) == (REQUEST, len(later))


def test_the_api_is_known() -> None:
    assert message_classes(ApiKey.PEER_HELLO) == (PeerHelloRequest, PeerHelloResponse)
    assert is_flexible(ApiKey.PEER_HELLO, 0)
