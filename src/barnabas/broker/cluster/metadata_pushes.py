"""Sends the updates of a `MetadataPublisher` to the other brokers, and waits until they have them."""

import asyncio
from collections.abc import Callable
from typing import Final

from barnabas.broker.cluster.metadata_messages import message_of
from barnabas.broker.peers.peer_connections import PeerConnections, Role
from barnabas.controller.metadata_publisher import MetadataPublisher
from barnabas.errors import BarnabasError, error_for
from barnabas.metadata.delta import MetadataChange
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.update import MetadataUpdate
from barnabas.protocol.peer_messages.push_metadata import PushMetadataResponse
from barnabas.types import BrokerId

__all__ = ["MetadataPushes"]

BACKOFF_S: Final = 0.05
BACKOFF_MAX_S: Final = 1.0
PUSH_TIMEOUT_S: Final = 10.0
WAIT_MAX_S: Final = 1.0
"""The longest wait for a broker that does not answer. It may be stopped; a request for new metadata goes on then."""


class MetadataPushes:
    """The pushes of the active controller. Used on the event loop's thread."""

    def __init__(
        self,
        image: MetadataImage,
        node_id: BrokerId,
        peers: PeerConnections,
        loop: asyncio.AbstractEventLoop,
        is_dead: Callable[[BrokerId], bool],
    ) -> None:
        """`is_dead` says of a broker that its process has ended: it gets nothing until it registers again."""
        self._image = image
        self._node_id = node_id
        self._peers = peers
        self._loop = loop
        self._is_dead = is_dead
        self._publisher = MetadataPublisher(image)
        self._versions: dict[BrokerId, tuple[int, int]] = {}
        """The epoch of each broker's registration, and the version of the image that it has."""
        self._failures: dict[BrokerId, int] = {}
        self._timers: dict[BrokerId, asyncio.TimerHandle] = {}
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._is_closed = False
        self._push_to_all()

    def image_changed(self, change: MetadataChange) -> None:
        """Sends a change to all brokers."""
        self._image = change.image
        self._publisher.image_changed(change)
        for node_id in change.brokers:
            self._failures.pop(node_id, None)
        self._push_to_all()
        self._wake()

    def hurry(self, node_id: BrokerId) -> None:
        """Sends a broker at once what it should get, without the rest of the wait after a failure."""
        timer = self._timers.get(node_id)
        if timer is not None:
            timer.cancel()
            self._push(node_id)

    def _push_to_all(self) -> None:
        for node_id in self._image.brokers:
            if node_id not in self._timers:
                self._push(node_id)

    def _push(self, node_id: BrokerId) -> None:
        """Sends the next part that a broker should get, if there is one."""
        self._timers.pop(node_id, None)
        broker = self._image.brokers.get(node_id)
        if self._is_closed or broker is None or node_id == self._node_id:
            return
        if broker.peer_endpoint is None or self._is_dead(node_id):
            return
        update = self._publisher.next_update(node_id)
        if update is None:
            return
        message, own = message_of(update), self._image.brokers.get(self._node_id)
        message.controller_broker_epoch = -1 if own is None else own.epoch
        answer = self._peers.send(node_id, message, role=Role.CONTROL, timeout_s=PUSH_TIMEOUT_S)
        answer.add_done_callback(lambda done: self._answered(node_id, broker.epoch, update, done))

    def _answered(
        self, node_id: BrokerId, epoch: int, update: MetadataUpdate, done: "asyncio.Future[PushMetadataResponse]"
    ) -> None:
        if self._is_closed:
            return
        try:
            response = done.result()
            if response.error_code:
                raise error_for(response.error_code, f"broker {node_id} refuses metadata")
        except (BarnabasError, asyncio.CancelledError):
            self._publisher.failed(node_id, update)
            failures = self._failures[node_id] = self._failures.get(node_id, 0) + 1
            pause = min(BACKOFF_S * 2 ** min(failures - 1, 10), BACKOFF_MAX_S)
            if node_id not in self._timers:
                self._timers[node_id] = self._loop.call_later(pause, self._push, node_id)
            return
        self._failures.pop(node_id, None)
        self._versions[node_id] = epoch, response.version
        self._publisher.acknowledged(node_id, update, response.version)
        self._wake()
        self._push(node_id)

    async def known(self) -> None:
        """Returns when all live brokers have the present image, after a second at the latest."""
        version = self._image.version
        if self._is_closed or self._is_known(version):
            return
        known: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((version, known))
        timer = self._loop.call_later(WAIT_MAX_S, _resolve, known)
        try:
            await known
        finally:
            timer.cancel()
            self._waiting = [entry for entry in self._waiting if entry[1] is not known]

    def _is_known(self, version: int) -> bool:
        for node_id, broker in self._image.brokers.items():
            if node_id == self._node_id or broker.fenced or broker.peer_endpoint is None:
                continue
            epoch, known = self._versions.get(node_id, (-1, -1))
            if epoch != broker.epoch or known < version:
                return False
        return True

    def _wake(self) -> None:
        for version, known in tuple(self._waiting):
            if self._is_known(version):
                _resolve(known)

    def close(self) -> None:
        """Ends the pushes: another broker is the controller, or this one stops."""
        self._is_closed = True
        for timer in self._timers.values():
            timer.cancel()
        for _, known in tuple(self._waiting):
            _resolve(known)


def _resolve(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
