"""For those who plan what is read elsewhere: where logs and epochs end, and when there is more."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from barnabas.client.admin.front import Admin
from barnabas.client.fetch.list_offsets import epoch_ends, list_offsets
from barnabas.client.offset_messages import PartitionOffset
from barnabas.connection.network_client import NetworkClient
from barnabas.types import TopicPartition

if TYPE_CHECKING:
    from barnabas.client.fetch.record_waiter import RecordWaiter

__all__ = ["LogWatcher"]


class LogWatcher(Admin):
    """An administrator that asks the same leaders again and again, with the metadata that it has, and parks a question
    for new records with them. Its own calls are for one thread."""

    def _open(self) -> None:
        super()._open()
        self._parking: RecordWaiter | None = None

    def offsets_at(
        self, times: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, PartitionOffset]:
        """As `list_offsets`, by the numbers of the protocol: a time in ms, -1 for the end, -2 for the beginning."""
        driver = self._opened()
        found = driver.run(
            lambda: list_offsets(self._client, times, read_committed=read_committed, timeout_s=self._timeout_s)
        )
        return driver.wait_for(found)

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int]]:
        """(epoch, end offset) of the largest leader epoch that is not above the asked one; -1 for none."""
        driver = self._opened()
        return driver.wait_for(driver.run(lambda: epoch_ends(self._client, epochs, self._timeout_s)))

    def wait_for_records(
        self, offsets: Mapping[TopicPartition, int], timeout: float, *, read_committed: bool = False
    ) -> bool:
        """Wait until there is a record at one of the offsets or behind it; False if there is none in time. Also true
        when something is wrong, such as a leader that is not known: look again then."""
        driver = self._opened()
        if self._parking is None:
            from barnabas.client.fetch.record_waiter import (
                RecordWaiter,  # all of fetching; who never waits need not pay for it
            )

            self._parking = RecordWaiter(self._client)
        parking = self._parking
        news = driver.run(lambda: parking.wait(offsets, timeout, read_committed=read_committed))
        return driver.wait(lambda: news.done, timeout)

    @property
    def _client(self) -> NetworkClient:
        return self._calls._client

    @property
    def _timeout_s(self) -> float:
        return self.settings.default_api_timeout_ms / 1000
