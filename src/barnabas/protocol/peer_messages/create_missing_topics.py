"""CreateMissingTopics: a broker has the controller create topics that its clients use, with the cluster's defaults."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.schema import Message, Request, Response, field


class CreateMissingTopicsRequest(Request):
    API_KEY = 20002
    FLEXIBLE_FROM = 0
    FIRST_VERSION = 0
    LAST_VERSION = 0
    names: Sequence[str] = field("string", 0, 0, default=(), array=True)


class CreatedTopic(Message):
    name: str = field("string", 0, 0, default="")
    error_code: int = field("int16", 0, 0, default=0)
    error_message: str | None = field("string", 0, 0, default=None, nullable_from=0)


class CreateMissingTopicsResponse(Response):
    API_KEY = 20002
    FLEXIBLE_FROM = 0
    FIRST_VERSION = 0
    LAST_VERSION = 0
    error_code: int = field("int16", 0, 0, default=0)
    topics: Sequence[CreatedTopic] = field(CreatedTopic, 0, 0, default=(), array=True)
