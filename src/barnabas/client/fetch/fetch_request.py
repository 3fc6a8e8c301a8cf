"""One Fetch request: what the consumer's settings say of it, and what is asked for."""

from typing import Final, NamedTuple

from barnabas.client.fetch.completed_fetch import Deserializer
from barnabas.client.fetch.fetch_session import TOPIC_IDS_FROM, SessionRequest
from barnabas.client.settings import ConsumerSettings
from barnabas.protocol.messages.fetch import FetchRequest

__all__ = ["FetchRules", "FetchTask"]

READ_COMMITTED: Final = 1


class FetchRules(NamedTuple):
    """The settings that concern fetching."""

    min_bytes: int = 1
    max_wait_ms: int = 500
    max_bytes: int = 50 * 1024**2
    max_partition_bytes: int = 1024**2
    read_committed: bool = False
    check_crcs: bool = True
    rack: str = ""
    replica_max_age_s: float = 300.0
    """How long a preferred replica is used before the leader is asked again."""
    key_deserializer: Deserializer | None = None
    value_deserializer: Deserializer | None = None

    @classmethod
    def of(cls, settings: ConsumerSettings) -> "FetchRules":
        return cls(
            settings.fetch_min_bytes,
            settings.fetch_max_wait_ms,
            settings.fetch_max_bytes,
            settings.max_partition_fetch_bytes,
            settings.read_committed,
            settings.check_crcs,
            settings.client_rack,
            settings.metadata_max_age_ms / 1000,
            settings.key_deserializer,
            settings.value_deserializer,
        )


class FetchTask(NamedTuple):
    """A request for one broker, which it may hold back for `max_wait_ms`."""

    node: int
    session: SessionRequest
    max_wait_ms: int
    rules: FetchRules

    @property
    def at_most(self) -> int | None:
        """The newest version that may be used; None: any."""
        return None if self.session.uses_topic_ids else TOPIC_IDS_FROM - 1

    def request(self, version: int) -> FetchRequest:
        rules = self.rules
        return FetchRequest(
            max_wait_ms=self.max_wait_ms,
            min_bytes=rules.min_bytes,
            max_bytes=rules.max_bytes,
            isolation_level=READ_COMMITTED if rules.read_committed else 0,
            session_id=self.session.session_id,
            session_epoch=self.session.epoch,
            topics=self.session.topics(version),
            forgotten_topics_data=self.session.forgotten(version),
            rack_id=rules.rack,
        )
