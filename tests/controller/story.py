"""Stories about decisions: a command, then the picture that it must leave.

    $ brokers 1 2
    $ create t partitions=2 factor=2
    t: created
    $ show
    t-0 leader 1 epoch 0 isr 1,2 of 1,2
    t-1 leader 2 epoch 0 isr 2,1 of 2,1

`tell` runs a story's commands against the pure decisions and returns the story as it really went, so that a failing
test shows the difference between two stories.
"""

import shlex
from collections.abc import Callable
from dataclasses import replace
from textwrap import dedent
from uuid import UUID

from barnabas.config.broker import BrokerConfig
from barnabas.config.log_config import LogConfig
from barnabas.controller import configuration_control, replication_control
from barnabas.controller.isr_control import IsrRequest, alter_partitions
from barnabas.controller.reassignment_control import Reassignment, alter_reassignments, drain_plan
from barnabas.controller.requests import (
    ConfigOp,
    ConfigOperation,
    ConfigResource,
    ElectionType,
    PartitionsRequest,
    ResourceType,
    TopicRequest,
)
from barnabas.errors import KafkaError
from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.image import BrokerImage, MetadataImage, TopicImage
from barnabas.registry.registry import (
    AddPartitions,
    Change,
    CreateTopic,
    DeleteTopic,
    SetBrokerConfig,
    SetPartition,
    SetTopicConfig,
)
from barnabas.replication.replica import NO_BROKER_EPOCH, BrokerState
from barnabas.types import BrokerId, LeaderEpoch

TYPES = {"topic": ResourceType.TOPIC, "broker": ResourceType.BROKER, "logger": ResourceType.BROKER_LOGGER,
         "group": ResourceType.GROUP}  # fmt: skip


UNSETTLED = ("adding", "removing", "elr", "last")


class NoChance:
    """Every offset 0, nothing shuffled."""

    def randrange(self, stop: int, /) -> int:
        return 0

    def shuffle(self, items: list[object], /) -> None:
        pass


def tell(story: str) -> tuple[str, str]:
    """(as written, as it went), for `assert` to compare."""
    world = World()
    told = dedent(story).strip("\n").splitlines()
    lived: list[str] = []
    for line in told:
        if not line.strip():
            lived.append(line)
        elif line.startswith("$ "):
            lived.append(line)
            lived.extend(world.do(line[2:]))
    return "\n".join(line for line in told if line.strip()), "\n".join(line for line in lived if line.strip())


class World:
    """An image, and the commands that decide upon it."""

    def __init__(self) -> None:
        self.image = MetadataImage("story")
        self.config = BrokerConfig()
        self.next_id = 0

    def do(self, line: str) -> list[str]:
        command, *words = shlex.split(line)
        options = dict(word.split("=", 1) for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        method: Callable[[list[str], dict[str, str]], list[str]] = getattr(self, f"do_{command.replace('-', '_')}")
        return method(plain, options)

    def apply(self, changes: list[Change]) -> None:
        delta = MetadataDelta(self.image)
        for change in changes:
            match change:
                case CreateTopic(name, topic_id, partitions, config):
                    delta.put_topic(TopicImage(name, topic_id, partitions))
                    delta.set_topic_config(name, config)
                case DeleteTopic(name):
                    delta.remove_topic(name)
                case AddPartitions(name, _, first, partitions):
                    delta.put_partitions(name, enumerate(partitions, first))
                case SetPartition(name, _, index, partition, expected):
                    assert self.image.topics[name].partitions[index].partition_epoch == expected
                    delta.put_partitions(name, [(index, partition)])
                case SetTopicConfig(name, config):
                    delta.set_topic_config(name, config)
                case SetBrokerConfig(name, config):
                    delta.set_broker_config(name, config)
        self.image = delta.apply(self.image.version + 1).image

    def new_id(self) -> UUID:
        self.next_id += 1
        return UUID(int=self.next_id)

    def log_config_of(self, name: str) -> LogConfig:
        return self.config.log_config(self.image.topic_config(name))

    # -- commands ---------------------------------------------------------------------------------------------------

    def do_settings(self, words: list[str], options: dict[str, str]) -> list[str]:
        self.config = BrokerConfig(options)
        return []

    def do_brokers(self, words: list[str], options: dict[str, str]) -> list[str]:
        """`brokers 1 2 fenced=3 unclean=4 lost=5` : these and no others are there; 4 and 5 have returned like this, and
        are fenced yet."""
        delta = MetadataDelta(self.image)
        for node_id in self.image.brokers:
            delta.remove_broker(node_id)
        for word in words:
            delta.put_broker(BrokerImage(int(word), 1, ()))
        for how, ids in options.items():
            for word in ids.split(","):
                delta.put_broker(BrokerImage(int(word), 1, (), fenced=True, returned=how if how != "fenced" else ""))
        self.image = delta.apply(self.image.version + 1).image
        return []

    def do_create(self, words: list[str], options: dict[str, str]) -> list[str]:
        """`create a b partitions=2 factor=1 assign=1,2/2,1 segment.bytes=14 retention.ms=NULL`"""
        partitions, factor = int(options.pop("partitions", "-1")), int(options.pop("factor", "-1"))
        numbered = [item.rpartition(":") for item in options.pop("assign", "").split("/") if item]
        assignments = [
            (int(number) if number else position, [int(node) for node in replicas.split(",") if node])
            for position, (number, _, replicas) in enumerate(numbered)
        ]
        configs = {name: None if value == "NULL" else value for name, value in options.items()}
        requests = [TopicRequest(name, partitions, factor, assignments, configs) for name in words]
        outcome = replication_control.create_topics(self.image, requests, self.config, NoChance(), self.new_id)
        self.apply(outcome.changes)
        return [_answer(name, result, "created") for name, result in outcome.results.items()]

    def do_delete(self, words: list[str], options: dict[str, str]) -> list[str]:
        """`delete a id:1`"""
        wanted = [UUID(int=int(word[3:])) if word.startswith("id:") else word for word in words]
        changes, results = replication_control.delete_topics(self.image, wanted)
        self.apply(changes)
        return [_answer(word, results[key], "deleted") for word, key in zip(words, wanted, strict=True)]

    def do_grow(self, words: list[str], options: dict[str, str]) -> list[str]:
        """`grow a to=3 assign=1/2`"""
        given = [[int(node) for node in item.split(",")] for item in options.get("assign", "").split("/") if item]
        requests = [
            PartitionsRequest(name, int(options["to"]), given if "assign" in options else None) for name in words
        ]
        changes, results = replication_control.create_partitions(self.image, requests, NoChance())
        self.apply(changes)
        return [_answer(name, result, "grown") for name, result in results.items()]

    def do_elect(self, words: list[str], options: dict[str, str]) -> list[str]:
        """`elect preferred a-0 b-1`, `elect unclean all`"""
        kind = {"preferred": ElectionType.PREFERRED, "unclean": ElectionType.UNCLEAN}.get(words[0], 7)
        wanted = None
        if words[1:] != ["all"]:
            wanted = [(name, int(number)) for name, _, number in (word.rpartition("-") for word in words[1:])]
        try:
            outcome = replication_control.elect_leaders(self.image, kind, wanted, self.log_config_of)
        except KafkaError as error:
            return [_answer("elect", error, "")]
        self.apply(outcome.changes)
        return [_answer(f"{name}-{number}", result, "elected") for (name, number), result in outcome.results.items()]

    def do_mend(self, words: list[str], options: dict[str, str]) -> list[str]:
        """`mend` after the brokers changed; topics named here may elect uncleanly."""

        def log_config_of(name: str) -> LogConfig:
            return replace(self.log_config_of(name), unclean_leader_election_enable=name in words)

        self.apply(replication_control.leaders_after_brokers_changed(self.image, log_config_of))
        return self.do_show([], {})

    def do_isr(self, words: list[str], options: dict[str, str]) -> list[str]:
        """`isr t-0 1 2:9 by=1:1 leader-epoch=0 partition-epoch=0`: broker 1 of epoch 1 proposes 1 and 2, which it knows
        in epoch 9. Epochs are those of the image if they are left out."""
        leader, _, epoch = options["by"].partition(":")
        name, _, number = words[0].rpartition("-")
        topic = self.image.topics.get(name)
        now = self.image.partition(name, int(number))
        request = IsrRequest(
            topic.topic_id if topic is not None else UUID(int=99),
            int(number),
            LeaderEpoch(int(options.get("leader-epoch", now.leader_epoch if now else 0))),
            int(options.get("partition-epoch", now.partition_epoch if now else 0)),
            tuple(_member(self.image, word) for word in words[1:]),
        )
        try:
            broker_epoch = int(epoch or 1)
            outcome = alter_partitions(self.image, BrokerId(int(leader)), broker_epoch, [request], self.log_config_of)
        except KafkaError as error:
            return [_answer(words[0], error, "")]
        self.apply(outcome.changes)
        ((_, result),) = outcome.results
        return [_answer(words[0], result, f"isr {','.join(words[1:])}")]

    def do_reassign(self, words: list[str], options: dict[str, str]) -> list[str]:
        """`reassign t-0=1,2 t-1=cancel factor=fixed`; topics named as words may elect uncleanly."""
        fixed = options.pop("factor", "") == "fixed"
        requests = []
        for key, ids in options.items():
            name, _, number = key.rpartition("-")
            replicas = None if ids == "cancel" else tuple(BrokerId(int(word)) for word in ids.split(",") if word)
            requests.append(Reassignment(name, int(number), replicas))

        def log_config_of(name: str) -> LogConfig:
            return replace(self.log_config_of(name), unclean_leader_election_enable=name in words)

        outcome = alter_reassignments(self.image, requests, log_config_of, allow_replication_factor_change=not fixed)
        self.apply(outcome.changes)
        return [_answer(f"{name}-{number}", result, "reassigned") for (name, number), result in outcome.results.items()]

    def do_drain(self, words: list[str], options: dict[str, str]) -> list[str]:
        """`drain 1`: moves all replicas away from broker 1."""
        try:
            plan = drain_plan(self.image, BrokerId(int(words[0])))
        except KafkaError as error:
            return [_answer("drain", error, "")]
        return self.do_reassign(
            [], {f"{each.topic}-{each.partition_index}": _ids(each.replicas or ()) for each in plan}
        )

    def do_balance(self, words: list[str], options: dict[str, str]) -> list[str]:
        self.apply(replication_control.preferred_leaders(self.image, self.log_config_of))
        return self.do_show([], {})

    def do_show(self, words: list[str], options: dict[str, str]) -> list[str]:
        return [
            f"{name}-{number} leader {p.leader} epoch {p.leader_epoch} isr {_ids(p.isr)} of {_ids(p.replicas)}"
            + "".join(f" {word} {_ids(ids)}" for word, ids in zip(UNSETTLED, p[5:], strict=True) if ids)
            for name, topic in self.image.topics.items()
            for number, p in enumerate(topic.partitions)
        ]

    def do_change(self, words: list[str], options: dict[str, str]) -> list[str]:
        """`change topic a set:retention.ms:5 delete:x append:cleanup.policy:compact`"""
        resource = ConfigResource(TYPES.get(words[0], 99), words[1])
        operations = []
        for word in words[2:]:
            verb, name, *value = word.split(":", 2)
            number = ConfigOp[verb.upper()] if verb.upper() in ConfigOp.__members__ else 9
            operations.append(ConfigOperation(name, number, value[0] if value else None))
        times = int(options.get("times", "1"))
        outcome = configuration_control.incremental_alter_configs(
            self.image, [(resource, operations)] * times, self.config
        )
        self.apply(outcome.changes)
        return [_answer(" ".join(words[:2]), result, "changed") for _, result in outcome.results]

    def do_replace(self, words: list[str], options: dict[str, str]) -> list[str]:
        """`replace topic a retention.ms=5`"""
        resource = ConfigResource(TYPES.get(words[0], 99), words[1])
        settings = [(name, None if value == "NULL" else value) for name, value in options.items()]
        outcome = configuration_control.alter_configs(self.image, [(resource, settings)], self.config)
        self.apply(outcome.changes)
        return [_answer(" ".join(words[:2]), result, "replaced") for _, result in outcome.results]

    def do_configs(self, words: list[str], options: dict[str, str]) -> list[str]:
        configs = [("topic", self.image.topic_configs), ("broker", self.image.broker_configs)]
        return [
            f"{kind} {name or 'all'}: {' '.join(f'{key}={value}' for key, value in sorted(config.items()))}"
            for kind, by_name in configs
            for name, config in sorted(by_name.items())
        ]


def _member(image: MetadataImage, word: str) -> BrokerState:
    """Returns a member of an ISR, in the epoch that is named, or in which it is registered."""
    number, _, epoch = word.partition(":")
    node_id = BrokerId(int(number))
    known = image.brokers[node_id].epoch if node_id in image.brokers else NO_BROKER_EPOCH
    return BrokerState(node_id, int(epoch or known))


def _answer(name: str, result: object, done: str) -> str:
    if isinstance(result, KafkaError):
        return f"{name}: {result.kafka_name} {result.message}"
    return f"{name}: {done}"


def _ids(ids: tuple[int, ...]) -> str:
    return ",".join(map(str, ids)) or "-"
