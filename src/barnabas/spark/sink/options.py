"""Parses the options of a write. A UsageError names the option, the rule and the remedy."""

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
"""Producer settings that a query must not change, with the reasons."""
_RESTRICTED: Final = ("acks", "enable.idempotence", "retries", "max.in.flight.requests.per.connection")
"""Producer settings whose values may make transactions impossible."""


class SinkOptions(NamedTuple):
    """The options of a write."""

    client: Mapping[str, str]
    """The producer's settings under Kafka's names."""
    topic: str | None
    two_phase: bool
    app_id: str | None
    version: int
    checkpoint: str | None
    """The location of a stream's checkpoint, if an option names it."""
    generation: int | None
    """The number that each record gets in the header `generation`."""

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool) -> "SinkOptions":
        """Raises UsageError."""
        check_names(options)
        given = {name.lower(): value for name, value in options.items()}
        two_phase = parse_choice(given, "exactlyOnce", _MODES) == TWO_PHASE
        app_id, version = _app_id_and_version(given, streaming=streaming, two_phase=two_phase)
        client = _producer_settings(given, two_phase=two_phase)
        generation = parse_count(given["generation"], "generation", least=0) if "generation" in given else None
        return cls(client, _topic(given), two_phase, app_id, version, given.get("checkpointlocation"), generation)


def _topic(given: Mapping[str, str]) -> str | None:
    if "topic" not in given:
        return None
    topic = given["topic"].strip()
    if not topic:
        raise UsageError("option topic is empty; name the topic, or leave it out and have a column topic")
    return topic


def _app_id_and_version(given: Mapping[str, str], *, streaming: bool, two_phase: bool) -> tuple[str | None, int]:
    app_id, version = given.get("txnappid"), given.get("txnversion")
    if app_id is None and version is None:
        return None, 0
    if app_id is None or version is None:
        have, want = ("txnAppId", "txnVersion") if version is None else ("txnVersion", "txnAppId")
        raise UsageError(
            f"option {have} is given without {want}; they go together: the writer and the number of its write"
        )
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


def _producer_settings(given: Mapping[str, str], *, two_phase: bool) -> dict[str, str]:
    client = client_settings(given)
    for name, reason in _REFUSED.items():
        if name in client:
            raise UsageError(f"option {KAFKA}{name} cannot be used: {reason}")
    consumer_only = set(ConsumerSettings.definitions.names()) - set(ProducerSettings.definitions.names())
    client = {name: value for name, value in client.items() if name not in consumer_only}
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
        names = ", ".join(KAFKA + name for name in _RESTRICTED if name in client)
        raise UsageError(
            f"option exactlyOnce=two-phase needs transactions, which {names} rules out ({error}); leave it out, or"
            " set exactlyOnce=none"
        ) from None
