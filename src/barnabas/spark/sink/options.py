"""What a write asks for, out of Spark's options. Pure: whatever is wrong is a UsageError that names the option, the
rule and the way out."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from barnabas.client.settings import ConsumerSettings, ProducerSettings
from barnabas.errors import UsageError
from barnabas.spark.option_table import KAFKA, check_names, parse_choice, parse_count
from barnabas.spark.source.options import client_settings

__all__ = ["TWO_PHASE", "SinkOptions"]

TWO_PHASE: Final = "two-phase"
_MODES: Final = (TWO_PHASE, "none")
_APP_ID_MAX: Final = 100

_REFUSED: Final = {
    "transactional.id": "each task has a transactional id of its own; name a writer by option txnAppId",
    "transaction.two.phase.commit.enable": "it is used by itself where the brokers allow it",
    "key.serializer": "keys are binary or string columns: convert them in the query",
    "value.serializer": "values are binary or string columns: convert them in the query",
    "interceptor.classes": "they could change records",
    "partitioner.class": "give a column partition instead",
}
"""Settings of the client that a query must not change."""
_NEEDED: Final = ("acks", "enable.idempotence", "retries", "max.in.flight.requests.per.connection")
"""Settings that can rule transactions out."""


class SinkOptions(NamedTuple):
    """All of a write's options."""

    client: Mapping[str, str]
    """Settings of the producer under Kafka's names, checked."""
    topic: str | None
    two_phase: bool
    app_id: str | None
    version: int
    checkpoint: str | None
    """Where a stream's checkpoint is, if an option says so."""
    generation: int | None
    """What the records' header says of the refresh that they are of."""

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool) -> "SinkOptions":
        """Raises UsageError."""
        check_names(options)
        given = {name.lower(): value for name, value in options.items()}
        two_phase = parse_choice(given, "exactlyOnce", _MODES) == TWO_PHASE
        app_id, version = _writer(given, streaming=streaming, two_phase=two_phase)
        client = _client(given, two_phase=two_phase)
        generation = parse_count(given["generation"], "generation", least=0) if "generation" in given else None
        return cls(client, _topic(given), two_phase, app_id, version, given.get("checkpointlocation"), generation)


def _topic(given: Mapping[str, str]) -> str | None:
    if "topic" not in given:
        return None
    topic = given["topic"].strip()
    if not topic:
        raise UsageError("option topic is empty; name the topic, or leave it out and have a column topic")
    return topic


def _writer(given: Mapping[str, str], *, streaming: bool, two_phase: bool) -> tuple[str | None, int]:
    app_id, version = given.get("txnappid"), given.get("txnversion")
    if app_id is None and version is None:
        return None, 0
    if app_id is None or version is None:
        have, want = ("txnAppId", "txnVersion") if version is None else ("txnVersion", "txnAppId")
        raise UsageError(f"option {have} is given without {want}; they go together: who writes, and what")
    if streaming:
        raise UsageError(
            "options txnAppId and txnVersion are for batch writes: a stream is known by its checkpoint; leave them out"
        )
    if not two_phase:
        raise UsageError("options txnAppId and exactlyOnce=none contradict each other; give one of them")
    app_id = app_id.strip()
    if not app_id or len(app_id) > _APP_ID_MAX or "/" in app_id:
        raise UsageError(f"option txnAppId={app_id!r} must be a name of 1 to {_APP_ID_MAX} characters without /")
    return app_id, parse_count(version, "txnVersion", least=0)


def _client(given: Mapping[str, str], *, two_phase: bool) -> dict[str, str]:
    client = client_settings(given)
    for name, reason in _REFUSED.items():
        if name in client:
            raise UsageError(f"option {KAFKA}{name} cannot be used: {reason}")
    readers = set(ConsumerSettings.definitions.names()) - set(ProducerSettings.definitions.names())
    client = {name: value for name, value in client.items() if name not in readers}
    try:
        ProducerSettings(client)
    except UsageError as error:
        raise UsageError(f"the options that begin with {KAFKA}: {error}") from None
    if two_phase:
        _check_transactions(client)
    return client


def _check_transactions(client: Mapping[str, str]) -> None:
    try:
        ProducerSettings({**client, "transactional.id": "any"})
    except UsageError as error:
        which = ", ".join(KAFKA + name for name in _NEEDED if name in client)
        raise UsageError(
            f"option exactlyOnce=two-phase needs transactions, which {which} rules out ({error}); leave that out, or"
            " set exactlyOnce=none"
        ) from None
