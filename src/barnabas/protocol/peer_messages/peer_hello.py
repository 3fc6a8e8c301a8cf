"""PeerHello: two brokers compare cluster and release before they use a connection.

This message is what brokers of different releases must understand of each other. Its version stays 0, and further
fields are tagged.
"""

from __future__ import annotations

from barnabas.protocol.schema import Request, Response, field


class PeerHelloRequest(Request):
    API_KEY = 20000
    FLEXIBLE_FROM = 0
    FIRST_VERSION = 0
    LAST_VERSION = 0
    cluster_id: str = field("string", 0, 0, default="")
    node_id: int = field("int32", 0, 0, default=-1)
    broker_epoch: int = field("int64", 0, 0, default=-1)
    release: str = field("string", 0, 0, default="")
    first_level: int = field("int16", 0, 0, default=0)
    last_level: int = field("int16", 0, 0, default=0)
    incarnation: str = field("string", 0, 0, default="", tag=0)
    place: str = field("string", 0, 0, default="", tag=1)


class PeerHelloResponse(Response):
    API_KEY = 20000
    FLEXIBLE_FROM = 0
    FIRST_VERSION = 0
    LAST_VERSION = 0
    error_code: int = field("int16", 0, 0, default=0)
    error_message: str | None = field("string", 0, 0, default=None, nullable_from=0)
    cluster_id: str = field("string", 0, 0, default="")
    node_id: int = field("int32", 0, 0, default=-1)
    broker_epoch: int = field("int64", 0, 0, default=-1)
    release: str = field("string", 0, 0, default="")
    first_level: int = field("int16", 0, 0, default=0)
    last_level: int = field("int16", 0, 0, default=0)
    incarnation: str = field("string", 0, 0, default="", tag=0)
    place: str = field("string", 0, 0, default="", tag=1)
