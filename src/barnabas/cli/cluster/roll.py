"""`barnabas cluster roll`: restarts the brokers one after the other, while the others serve."""

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import IO, Annotated, Final, NamedTuple

from barnabas import Admin
from barnabas.cli.cluster.under_replicated import min_in_sync
from barnabas.cli.framework.app import App, Option
from barnabas.cli.framework.options import CONNECT_TIMEOUT_S, DEFAULT_CLUSTER, Cluster, Json
from barnabas.cli.framework.outcomes import outcomes
from barnabas.cli.framework.output import CommandFailed, notice, show
from barnabas.cli.framework.replication import has_missing_replicas, ids_text
from barnabas.cli.framework.resources import broker_ids, known_releases, plural, some
from barnabas.client.admin.cluster import ClusterDescription
from barnabas.connection.cluster import Broker, TopicView
from barnabas.errors import BarnabasError, UsageError

__all__ = ["WAY_OUT", "Restarted", "Roll", "by_command", "register"]

POLL_S: Final = 0.2
TOLD_AFTER_S: Final = 5.0
"""The time after which the command says what it waits for, and that to the next such line."""
OUTPUT_MAX: Final = 500
WAY_OUT: Final = (
    "`barnabas cluster doctor` says what to do; `barnabas cluster unregister` forgets a broker that is gone"
)

Restart = Callable[[Broker, float], None]
"""Has a broker's process end and another one start, within so many seconds. Raises CommandFailed."""


def register(app: App) -> None:
    """Adds the command to `barnabas cluster`."""
    app.command(
        "roll",
        example="barnabas cluster roll --restart-command 'ssh {host} systemctl restart barnabas'\n"
        "barnabas cluster roll --data-dir data",
    )(roll)


def roll(
    restart_command: Annotated[
        str | None,
        Option(
            metavar="COMMAND",
            takes_bytes=True,
            help="The shell runs it for each broker, with {id}, {host} and {port} replaced.",
        ),
    ] = None,
    data_dir: Annotated[
        str | None,
        Option(
            metavar="DIR",
            takes_bytes=True,
            help="Of `serve --brokers` on this machine, which starts brokers again that have ended.",
        ),
    ] = None,
    broker: Annotated[list[int] | None, Option(help="Restart only this broker; repeat for more.")] = None,
    broker_timeout: Annotated[
        float, Option(metavar="SECONDS", minimum=1, help="Stop if a broker is not back in sync within this time.")
    ] = 300.0,
    cluster: Cluster = DEFAULT_CLUSTER,
    json: Json = False,
) -> None:
    """Restart all brokers, one after the other, the controller last, without an interruption for clients.

    A broker is restarted when all brokers are live and all replicas of the cluster are in sync, and the next one when
    it is back and all are in sync again. If it does not come back, the others are left alone. In the end the preferred
    leaders are elected. The releases of before and after are told of each: an upgrade that changed nothing is seen.
    """
    if (restart_command is None) == (data_dir is None):
        raise UsageError("roll: give either --restart-command or --data-dir")
    if restart_command is not None and not restart_command.strip():
        raise UsageError("--restart-command: must not be empty, such as 'ssh {host} systemctl restart barnabas'")
    restart = by_command(restart_command) if restart_command is not None else _by_signal(str(data_dir))
    with cluster.admin() as admin:
        rolling = Roll(admin, restart, broker_timeout)
        restarted = rolling.run(broker_ids(admin, broker))
        _, failed = outcomes(lambda: admin.elect_leaders())
    rows = [{"broker": node_id, **each._asdict()} for node_id, each in restarted.items()]
    show(rows, json, lambda: f"restarted {plural(len(rows), 'broker')}")
    if failed:
        raise CommandFailed("; ".join(str(error) for error in failed.values()))


class Restarted(NamedTuple):
    """A broker that is back in sync. The releases are None where the broker does not tell them."""

    seconds: float
    release_before: str | None
    release: str | None

    def __str__(self) -> str:
        if self.release == self.release_before:
            return f"release {self.release} as before" if self.release else "its release is not known"
        return f"release {self.release or 'unknown'}, {self.release_before or 'unknown'} before"


class _Former(NamedTuple):
    """The process of a broker before its restart."""

    broker: Broker
    epoch: int
    """Of its registration; 0 if the brokers do not tell."""
    connection: socket.socket

    def has_ended(self, description: ClusterDescription) -> bool:
        """Returns whether another process has registered as this broker. Where the brokers do not tell that (Kafka's),
        whether the process has ended the connection."""
        epoch = description.epochs.get(self.broker.node_id, 0)
        if self.epoch and epoch:
            return epoch != self.epoch
        try:
            self.connection.setblocking(False)
            return not self.connection.recv(1)
        except BlockingIOError:
            return False
        except OSError:  # reset
            return True


class Roll:
    """Restarts brokers by `restart`, each within `timeout_s`."""

    def __init__(
        self,
        admin: Admin,
        restart: Restart,
        timeout_s: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._admin = admin
        self._restart = restart
        self._timeout_s = timeout_s
        self._clock = clock
        self._sleep = sleep

    def run(self, node_ids: Sequence[int]) -> dict[int, Restarted]:
        """Restarts these brokers. Raises CommandFailed."""
        left = list(node_ids)
        taken: dict[int, Restarted] = {}
        self._warn(left)
        before = known_releases(self._admin)
        while left:
            try:
                self._wait(self._clock() + self._timeout_s, "before the next restart")
                description = self._admin.describe_cluster()
                node_id = min(left, key=lambda each: (each == description.controller_id, each))
                left.remove(node_id)
                began = self._clock()
                broker = description.brokers.get(node_id)
                if broker is None:
                    raise CommandFailed(f"broker {node_id} was not live")
                self._restart_one(broker, description.epochs.get(node_id, 0))
                seconds = round(self._clock() - began, 1)
                release = known_releases(self._admin).get(node_id)
                taken[node_id] = Restarted(seconds, before.get(node_id), release)
            except BarnabasError as error:
                rest = f"; not restarted: {ids_text(left)}" if left else ""
                raise CommandFailed(f"{error}{rest}") from None
            restarted = taken[node_id]
            notice(
                f"broker {node_id}: in sync again after {restarted.seconds} s; {restarted}; "
                f"{plural(len(left), 'broker')} to go"
            )
        return taken

    def _restart_one(self, broker: Broker, epoch: int) -> None:
        deadline = self._clock() + self._timeout_s
        notice(f"broker {broker.node_id} at {broker.host}:{broker.port}: restarting")
        with _connection(broker, CONNECT_TIMEOUT_S) as connection:
            self._restart(broker, self._timeout_s)
            moment = f"after the restart of broker {broker.node_id}"
            self._wait(deadline, moment, _Former(broker, epoch, connection))

    def _wait(self, deadline: float, moment: str, former: _Former | None = None) -> None:
        """Waits until all replicas are in sync, and a broker is there whose `former` process has ended. The answers of
        other brokers may be old, so they have to say it twice. Says after some seconds what it waits for. Raises
        CommandFailed at the deadline."""
        times_well, told, tells_from = 0, "", self._clock() + TOLD_AFTER_S
        while times_well < 2:
            problem = self._problem(former)
            times_well = 0 if problem else times_well + 1
            now = self._clock()
            if problem and now >= deadline:
                raise CommandFailed(f"{moment} {problem} for {self._timeout_s:g} s ({WAY_OUT})")
            if problem not in ("", told) and now >= tells_from:
                notice(f"waiting for up to {deadline - now:.0f} s: {moment} {problem}")
                told, tells_from = problem, now + TOLD_AFTER_S
            self._sleep(POLL_S)

    def _problem(self, former: _Former | None) -> str:
        """Returns why no broker can be restarted now, or an empty text."""
        try:
            if former is not None:
                with _connection(former.broker, CONNECT_TIMEOUT_S):
                    pass
            description = self._admin.describe_cluster(include_fenced=True)
            views = self._admin.list_topics(internal=True)
        except CommandFailed:
            return "it was not reachable"
        except BarnabasError as error:
            return f"the cluster did not answer ({error})"
        live = description.brokers.keys() - description.fenced
        if former is not None and former.broker.node_id not in live:
            return "it was not live"
        if former is not None and not former.has_ended(description):
            return "it was the process of before (is it what is restarted?)"
        if description.controller_id not in live:
            return "there was no controller"
        if description.fenced:
            return f"broker {ids_text(sorted(description.fenced))} was not live"
        behind = [f"{view.name}-{p.partition}" for view in views for p in view.in_order() if has_missing_replicas(p)]
        return f"not all replicas of {some(behind)} were in sync" if behind else ""

    def _warn(self, node_ids: Collection[int]) -> None:
        """Tells which partitions are interrupted by the restart of one of their brokers."""
        views = self._admin.list_topics(internal=True)
        found = _interrupted(views, min_in_sync(self._admin, [view.name for view in views]), node_ids)
        if found:
            notice(f"{plural(found, 'partition')} without replicas to spare: their producers wait for each restart")


def _interrupted(views: Collection[TopicView], minimums: dict[str, int], node_ids: Collection[int]) -> int:
    """Returns how many partitions on these brokers accept no records while one of their replicas is away."""
    return sum(
        len(p.replicas) - 1 < max(1, min(minimums.get(view.name, 1), len(p.replicas)))
        for view in views
        for p in view.partitions.values()
        if set(p.replicas) & set(node_ids)
    )


@contextlib.contextmanager
def _connection(broker: Broker, timeout_s: float) -> Iterator[socket.socket]:
    """Yields a connection to a broker. Raises CommandFailed."""
    try:
        connection = socket.create_connection((broker.host, broker.port), timeout_s)
    except OSError as error:
        reason = error.strerror or error
        raise CommandFailed(f"broker {broker.node_id} at {broker.host}:{broker.port}: {reason}") from None
    with connection:
        yield connection


def by_command(template: str) -> Restart:
    """Returns a restart by a shell's command, with {id}, {host} and {port} replaced by the broker's."""

    def restart(broker: Broker, timeout_s: float) -> None:
        replaced = {"{id}": broker.node_id, "{host}": broker.host, "{port}": broker.port}
        command = template
        for name, value in replaced.items():
            command = command.replace(name, shlex.quote(str(value)))
        what = f"the restart command of broker {broker.node_id}"
        # a file and no pipes: what the command leaves running keeps its output open, and may write to it later
        with tempfile.TemporaryFile() as output:
            try:
                code = _run(command, timeout_s, output)
            except subprocess.TimeoutExpired:
                raise CommandFailed(f"{what} has not ended within {timeout_s:g} s: {command}") from None
            if code:
                raise CommandFailed(f"{what} ended with exit code {code}: {command}: {_end_of(output)}")

    return restart


def _run(command: str, timeout_s: float, output: IO[bytes]) -> int:
    """Returns the exit code of a shell's command. If it has not ended in time, all of its processes are killed. Raises
    TimeoutExpired."""
    with subprocess.Popen(
        command, shell=True, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
    ) as process:
        try:
            return process.wait(timeout_s)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise


def _end_of(output: IO[bytes]) -> str:
    output.seek(max(0, output.seek(0, os.SEEK_END) - OUTPUT_MAX))
    return output.read(OUTPUT_MAX).decode(errors="replace").strip()


def _by_signal(data_dir: str) -> Restart:
    def restart(broker: Broker, _timeout_s: float) -> None:
        from barnabas.broker.supervisor.running_brokers import stop_broker

        stop_broker(data_dir, broker.node_id)

    return restart
