"""The duties of the broker that is the controller: metadata pushes, heartbeats of the others, watches of their
processes."""

from collections.abc import Callable, Iterable
from functools import partial

from barnabas.broker.cluster.liveness import Liveness, Watch
from barnabas.broker.cluster.metadata_pushes import MetadataPushes
from barnabas.broker.peers.peer_connections import PeerConnections
from barnabas.broker.requests.late_responses import run_handler
from barnabas.broker.services import BrokerServices
from barnabas.controller.broker_heartbeats import BrokerHeartbeats
from barnabas.controller.controller import Controller
from barnabas.errors import KafkaError, StaleBrokerEpoch
from barnabas.metadata.delta import MetadataChange
from barnabas.metadata.image import CONSUMER_OFFSETS, TRANSACTION_STATE, BrokerImage
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.types import BrokerId

__all__ = ["ControllerDuties"]


class ControllerDuties:
    """Kept while this broker is the controller. Used on the event loop's thread."""

    def __init__(
        self, broker: BrokerServices, peers: PeerConnections, liveness: Liveness, *, may_resign: bool = True
    ) -> None:
        """`may_resign` is False for a broker that has resigned, and nobody else has taken the role."""
        self._may_resign = may_resign
        self.has_resigned = False
        """Whether this broker gave the role up, or tries to, because it hears of too few others."""
        self._is_resigning = False
        self._broker = broker
        self._peers = peers
        self._liveness = liveness
        self._dead: set[tuple[BrokerId, int]] = set()
        """The registrations whose process has ended."""
        self._watches: dict[BrokerId, tuple[int, Watch]] = {}
        """The epoch of the registration that is watched, and the end of the watch."""
        self.cordoned: set[BrokerId] = set()
        """The brokers that take no new replicas, as they have said."""
        self._fencing: set[tuple[BrokerId, int]] = set()
        """The registrations that are being fenced."""
        self._lost: set[tuple[BrokerId, int]] = set()
        """The live registrations of which nothing was heard since a connection with them has ended, or since this
        broker is the controller."""
        self._fenced_since: dict[BrokerId, tuple[int, int]] = {}
        """The epoch of each fenced broker, and the version of the first image here that showed it as fenced."""
        self._is_closed = False
        self._note_fenced()
        self._session_timeout_s = broker.config.broker_session_timeout_ms / 1000
        self._checked_at = broker.clock.monotonic()
        self._heartbeats = BrokerHeartbeats(self._session_timeout_s, self._checked_at)
        self._watch_all()
        self.pushes = MetadataPushes(broker.image, broker.node_id, peers, broker.loop, self._is_dead)
        for each in broker.image.brokers.values():
            if each.node_id != broker.node_id and not each.fenced:
                self.connection_lost(each)  # the broker may have died together with the former controller

    def image_changed(self, change: MetadataChange) -> None:
        if change.brokers:
            self._watch_all()
            self._note_fenced()
        self.pushes.image_changed(change)

    def _note_fenced(self) -> None:
        image = self._broker.image
        before, self._fenced_since = self._fenced_since, {}
        for node_id, broker in image.brokers.items():
            if broker.fenced:
                since = before.get(node_id)
                is_known = since is not None and since[0] == broker.epoch
                self._fenced_since[node_id] = since if since and is_known else (broker.epoch, image.version)

    # --- processes --------------------------------------------------------------------------------------------------

    def _watch_all(self) -> None:
        brokers = self._broker.image.brokers
        for node_id, (epoch, end) in tuple(self._watches.items()):
            if node_id not in brokers or brokers[node_id].epoch != epoch:
                end()
                del self._watches[node_id]
        for node_id, broker in brokers.items():
            if node_id != self._broker.node_id and broker.process and node_id not in self._watches:
                exited = partial(self._exited, broker)
                self._watches[node_id] = broker.epoch, self._liveness.watch(broker.process, exited)
        self._dead &= {(node_id, broker.epoch) for node_id, broker in brokers.items()}
        self._lost &= {(node_id, broker.epoch) for node_id, broker in brokers.items() if not broker.fenced}

    def _exited(self, broker: BrokerImage) -> None:
        self._dead.add((broker.node_id, broker.epoch))
        self._broker.controller.check()  # fences the brokers that are dead

    def _is_dead(self, node_id: BrokerId) -> bool:
        broker = self._broker.image.brokers.get(node_id)
        return broker is None or not broker.process or (node_id, broker.epoch) in self._dead

    # --- connections ------------------------------------------------------------------------------------------------

    def connection_lost(self, broker: BrokerImage) -> None:
        """Finds out whether nobody listens any more where a broker did that is not fenced, because a connection with it
        has ended."""
        if broker.peer_endpoint is not None:
            self._lost.add((broker.node_id, broker.epoch))
            self._peers.connect(broker.node_id)

    def unreached(self, broker: BrokerImage, *, refused: bool) -> None:
        """Fences a broker if its host refuses connections to it, and nothing was heard of it since one has ended: most
        likely its process is dead on a machine that is not. Otherwise tries again until the session has timed out: the
        kernel ends the connections of a process before it refuses others."""
        registration = broker.node_id, broker.epoch
        if registration not in self._lost:
            return
        if not refused:
            self._peers.connect(broker.node_id)
            return
        self._lost.discard(registration)
        run_handler(self._broker.loop, self._fence_refusing(broker))

    async def _fence_refusing(self, broker: BrokerImage) -> None:
        await self._fence(broker.node_id, broker.epoch, "its connections have ended, and its host refuses others")
        now = self._broker.image.brokers.get(broker.node_id)
        if not self._is_closed and now is not None and now.epoch == broker.epoch and not now.fenced:
            self.connection_lost(now)  # the registry did not respond

    # --- heartbeats -------------------------------------------------------------------------------------------------

    def check_sessions(self) -> None:
        """Fences the brokers that have not been heard of for broker.session.timeout.ms. Called periodically. If this
        process stood still meanwhile, it could not hear of anybody, and all get a whole session."""
        broker = self._broker
        now = broker.clock.monotonic()
        if now - self._checked_at > self._session_timeout_s / 2:
            self._heartbeats = BrokerHeartbeats(self._session_timeout_s, now)
        self._checked_at = now
        others = self._others()
        timeout_ms = broker.config.broker_session_timeout_ms
        reason = f"nothing was heard of it for {timeout_ms} ms"
        suspects = self._heartbeats.suspected(others, now)
        if self._is_resigning:
            return  # whoever takes the role decides about the others
        if suspects and self._may_resign and self._is_in_minority(others, now):
            run_handler(broker.loop, self._resign())
            return
        for suspected in suspects:
            silent_s = self._heartbeats.silent_s(suspected, now)
            run_handler(broker.loop, self._fence(suspected.node_id, suspected.epoch, reason, silent_s))

    def _is_in_minority(self, others: Iterable[BrokerImage], now: float) -> bool:
        """Returns whether this broker hears of so few of the live brokers that they are likely to hear of each other,
        and this one is cut off."""
        live = [each for each in others if not each.fenced]
        return 2 * (self._heartbeats.heard_lately(live, now) + 1) < len(live) + 1

    def hears_of_enough(self, within_s: float) -> bool:
        """Returns whether so many brokers were heard of in the last seconds that those which are left, fenced or not,
        could not commit what a coordinator writes."""
        others, since = self._others(), self._broker.clock.monotonic() - within_s
        unheard = len(others) - self._heartbeats.heard_since(others, since)
        return unheard < self._least_in_sync()

    def _least_in_sync(self) -> int:
        image, config = self._broker.image, self._broker.config
        topics = (CONSUMER_OFFSETS, TRANSACTION_STATE)
        return min(config.log_config(image.topic_config(topic)).min_insync_replicas for topic in topics)

    @property
    def gives_role_up(self) -> bool:
        """Whether another broker may get the role, because this one has resigned, or tries to."""
        return self.has_resigned or self._is_resigning

    def _others(self) -> list[BrokerImage]:
        return [each for node_id, each in self._broker.image.brokers.items() if node_id != self._broker.node_id]

    async def _resign(self) -> None:
        """Lets another broker be the controller. Without an answer the next check tries again."""
        if not self.has_resigned:
            self._broker.log.warning(
                "this broker hears of less than half of the live brokers: another one may be the controller"
            )
        self.has_resigned = self._is_resigning = True
        try:
            self._may_resign = not await self._try(lambda controller: controller.resign(self._session_timeout_s))
        finally:
            self._is_resigning = False

    def balance_leaders(self) -> None:
        """Lets preferred leaders lead again. Called every leader.imbalance.check.interval.seconds."""
        run_handler(self._broker.loop, self._try(Controller.balance_leaders))

    async def _fence(self, node_id: BrokerId, epoch: int, reason: str, silent_s: float = 0.0) -> None:
        if (node_id, epoch) in self._fencing:
            return  # the registry takes its time
        self._fencing.add((node_id, epoch))
        try:
            await self._try(lambda controller: controller.fence(node_id, epoch, reason, silent_s))
        finally:
            self._fencing.discard((node_id, epoch))

    async def _try(self, action: Callable[[Controller], None]) -> bool:
        """Returns False if the action has failed, or nobody knows whether it has."""
        try:
            await self._broker.controller.call(action, until_known=False)
            return True
        except KafkaError as error:
            # the next heartbeat or check tries again
            self._broker.failures.warn("the registry", f"the registry: {error}")
            return False

    def heard(self, request: BrokerHeartbeatRequest) -> None:
        """Notes that a heartbeat of a broker has come, whatever the answer will be."""
        self._heartbeats.heard(BrokerId(request.broker_id), request.broker_epoch, self._broker.clock.monotonic())

    async def heartbeat(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        """Answers a heartbeat. A live broker that knows of its fencing is no longer fenced afterwards; one that wants
        to stop is. A broker whose process stood still does not know yet what others lead in its place.

        Raises StaleBrokerEpoch for a broker that is not registered in this epoch.
        """
        broker = self._broker
        node_id, epoch = BrokerId(request.broker_id), request.broker_epoch
        known = broker.image.brokers.get(node_id)
        if known is None or known.epoch < epoch:  # it has registered since the registry was read
            await broker.controller.call(Controller.refresh, until_known=False)
            known = broker.image.brokers.get(node_id)
        if known is None or known.epoch != epoch:
            raise StaleBrokerEpoch(f"broker {node_id} is not registered in epoch {epoch}")
        self.heard(request)
        (self.cordoned.add if request.takes_no_replicas else self.cordoned.discard)(node_id)
        self._lost.discard((node_id, epoch))
        self._may_resign = True
        self.has_resigned = False
        _, version = self._fenced_since.get(node_id, (epoch, -1))
        if known.fenced and not request.want_shut_down and request.current_metadata_offset < version:
            self.pushes.hurry(node_id)
            return BrokerHeartbeatResponse(is_caught_up=False, is_fenced=True)
        if known.fenced != request.want_shut_down:
            if request.want_shut_down:
                await self._fence(node_id, epoch, "it stops")
            else:
                await self._try(lambda controller: controller.unfence(node_id, epoch))
            known = broker.image.brokers.get(node_id, known)
        return BrokerHeartbeatResponse(
            is_caught_up=True, is_fenced=known.fenced, should_shut_down=known.fenced and request.want_shut_down
        )

    def close(self) -> None:
        self._is_closed = True
        self.pushes.close()
        for _, end in self._watches.values():
            end()
        self._watches.clear()
