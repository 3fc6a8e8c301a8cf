"""Generates docs/compatibility.md from the code: the served APIs and settings, the missing ones, and the differences.

    python tools/generate_compatibility.py           prints the page
    python tools/generate_compatibility.py --write   writes docs/compatibility.md

The table of Kafka's APIs is that of Apache Kafka 4.4.0; a test holds the page against this script.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from barnabas.config.kafka_names import WITHOUT_EFFECT, refusals
from barnabas.protocol.apis import SERVED, VersionRange

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "compatibility.md"

SECURITY: Final = "TLS, SASL, ACLs and delegation tokens"
QUOTAS: Final = "quotas of clients"
REPLICATION: Final = "replication and reassignment"
NEW_GROUPS: Final = "the new consumer groups (KIP-848)"
SHARE_GROUPS: Final = "share groups (KIP-932)"
STREAMS_GROUPS: Final = "streams groups (KIP-1071)"
TELEMETRY: Final = "client telemetry (KIP-714)"
RAFT: Final = "not needed: there is no Raft quorum, the registry does its work"


class KafkaApi(NamedTuple):
    """An API of Kafka's brokers."""

    key: int
    name: str
    first: int
    last: int
    area: str = ""
    """The heading of an API that is not served."""


KAFKA_APIS: Final = (
    KafkaApi(0, "Produce", 3, 13),
    KafkaApi(1, "Fetch", 4, 18),
    KafkaApi(2, "ListOffsets", 1, 11),
    KafkaApi(3, "Metadata", 0, 13),
    KafkaApi(8, "OffsetCommit", 2, 10),
    KafkaApi(9, "OffsetFetch", 1, 10),
    KafkaApi(10, "FindCoordinator", 0, 6),
    KafkaApi(11, "JoinGroup", 0, 9),
    KafkaApi(12, "Heartbeat", 0, 4),
    KafkaApi(13, "LeaveGroup", 0, 5),
    KafkaApi(14, "SyncGroup", 0, 5),
    KafkaApi(15, "DescribeGroups", 0, 6),
    KafkaApi(16, "ListGroups", 0, 5),
    KafkaApi(17, "SaslHandshake", 0, 1, SECURITY),
    KafkaApi(18, "ApiVersions", 0, 5),
    KafkaApi(19, "CreateTopics", 2, 7),
    KafkaApi(20, "DeleteTopics", 1, 6),
    KafkaApi(21, "DeleteRecords", 0, 2),
    KafkaApi(22, "InitProducerId", 0, 6),  # 6 (KIP-939) is unstable in Kafka: its brokers say 5 unless told otherwise
    KafkaApi(23, "OffsetForLeaderEpoch", 2, 4),
    KafkaApi(24, "AddPartitionsToTxn", 0, 5),
    KafkaApi(25, "AddOffsetsToTxn", 0, 4),
    KafkaApi(26, "EndTxn", 0, 5),
    KafkaApi(27, "WriteTxnMarkers", 1, 2),
    KafkaApi(28, "TxnOffsetCommit", 0, 6),
    KafkaApi(29, "DescribeAcls", 1, 3, SECURITY),
    KafkaApi(30, "CreateAcls", 1, 3, SECURITY),
    KafkaApi(31, "DeleteAcls", 1, 3, SECURITY),
    KafkaApi(32, "DescribeConfigs", 1, 4),
    KafkaApi(33, "AlterConfigs", 0, 2),
    KafkaApi(34, "AlterReplicaLogDirs", 1, 2),
    KafkaApi(35, "DescribeLogDirs", 1, 5),
    KafkaApi(36, "SaslAuthenticate", 0, 2, SECURITY),
    KafkaApi(37, "CreatePartitions", 0, 3),
    KafkaApi(38, "CreateDelegationToken", 1, 3, SECURITY),
    KafkaApi(39, "RenewDelegationToken", 1, 2, SECURITY),
    KafkaApi(40, "ExpireDelegationToken", 1, 2, SECURITY),
    KafkaApi(41, "DescribeDelegationToken", 1, 3, SECURITY),
    KafkaApi(42, "DeleteGroups", 0, 3),
    KafkaApi(43, "ElectLeaders", 0, 2),
    KafkaApi(44, "IncrementalAlterConfigs", 0, 1),
    KafkaApi(45, "AlterPartitionReassignments", 0, 1),
    KafkaApi(46, "ListPartitionReassignments", 0, 0),
    KafkaApi(47, "OffsetDelete", 0, 0),
    KafkaApi(48, "DescribeClientQuotas", 0, 1, QUOTAS),
    KafkaApi(49, "AlterClientQuotas", 0, 1, QUOTAS),
    KafkaApi(50, "DescribeUserScramCredentials", 0, 0, SECURITY),
    KafkaApi(51, "AlterUserScramCredentials", 0, 0, SECURITY),
    KafkaApi(55, "DescribeQuorum", 0, 2, RAFT),
    KafkaApi(57, "UpdateFeatures", 0, 2),
    KafkaApi(60, "DescribeCluster", 0, 2),
    KafkaApi(61, "DescribeProducers", 0, 0),
    KafkaApi(64, "UnregisterBroker", 0, 0),
    KafkaApi(65, "DescribeTransactions", 0, 0),
    KafkaApi(66, "ListTransactions", 0, 2),
    KafkaApi(68, "ConsumerGroupHeartbeat", 0, 1, NEW_GROUPS),
    KafkaApi(69, "ConsumerGroupDescribe", 0, 1, NEW_GROUPS),
    KafkaApi(71, "GetTelemetrySubscriptions", 0, 0, TELEMETRY),
    KafkaApi(72, "PushTelemetry", 0, 0, TELEMETRY),
    KafkaApi(74, "ListConfigResources", 0, 1),
    KafkaApi(75, "DescribeTopicPartitions", 0, 0),
    KafkaApi(76, "ShareGroupHeartbeat", 1, 1, SHARE_GROUPS),
    KafkaApi(77, "ShareGroupDescribe", 1, 1, SHARE_GROUPS),
    KafkaApi(78, "ShareFetch", 1, 2, SHARE_GROUPS),
    KafkaApi(79, "ShareAcknowledge", 1, 2, SHARE_GROUPS),
    KafkaApi(80, "AddRaftVoter", 0, 1, RAFT),
    KafkaApi(81, "RemoveRaftVoter", 0, 0, RAFT),
    KafkaApi(83, "InitializeShareGroupState", 0, 0, SHARE_GROUPS),
    KafkaApi(84, "ReadShareGroupState", 0, 0, SHARE_GROUPS),
    KafkaApi(85, "WriteShareGroupState", 0, 1, SHARE_GROUPS),
    KafkaApi(86, "DeleteShareGroupState", 0, 0, SHARE_GROUPS),
    KafkaApi(87, "ReadShareGroupStateSummary", 0, 1, SHARE_GROUPS),
    KafkaApi(88, "StreamsGroupHeartbeat", 0, 1, STREAMS_GROUPS),
    KafkaApi(89, "StreamsGroupDescribe", 0, 1, STREAMS_GROUPS),
    KafkaApi(90, "DescribeShareGroupOffsets", 0, 1, SHARE_GROUPS),
    KafkaApi(91, "AlterShareGroupOffsets", 0, 0, SHARE_GROUPS),
    KafkaApi(92, "DeleteShareGroupOffsets", 0, 0, SHARE_GROUPS),
    KafkaApi(93, "StreamsGroupTopologyDescriptionUpdate", 0, 0, STREAMS_GROUPS),
    KafkaApi(94, "UnregisterController", 0, 0, RAFT),
)
"""The APIs that a broker of Apache Kafka 4.4.0 offers its clients. Keys 4 to 7 are gone from the protocol; 52 to 54,
56, 58, 59, 62, 63, 67, 70, 73 and 82 are spoken among Kafka's controllers only."""

_DEFAULTS: Final = (
    ("listeners", "`PLAINTEXT://127.0.0.1:9092`: this machine only", "every interface"),
    ("log.dir", "`barnabas-data` in the working directory", "`/tmp/kafka-logs`"),
    ("node.id", "`1`", "must be given"),
    ("replica.socket.receive.buffer.bytes", "`-1`: the system's, which adapts it", "`65536`"),
    ("group.initial.rebalance.delay.ms", "`0`, as Kafka's quickstart sets it", "`3000`"),
)

_HEAD: Final = """# Compatibility

Made by `tools/generate_compatibility.py`; do not edit.

The measure is Apache Kafka 4.4.0. A broker tells its clients in ApiVersions what it serves, and clients switch their
features by that list; so an API stands there only when all of it works.
"""


_BEYOND: Final = """
* **Tiered storage**: everything is local.
"""

_CLIENTS: Final = """
## Defects of clients

These lose records with any broker, Kafka's included.

* **KafkaJS**, as an idempotent producer: after a retry it gives a record for another partition a sequence number that
  it has used there before. The broker takes the record for a repetition, so one that KafkaJS calls acknowledged may not
  be there. Without `idempotent: true` records are there twice after some retries, and none is missing.
"""


def render() -> str:
    """The whole page."""
    missing = [api for api in KAFKA_APIS if api.key not in SERVED]
    parts = [_HEAD, f"## APIs\n\n{len(SERVED)} of the {len(KAFKA_APIS)} that a Kafka broker offers its clients.\n"]
    parts.append("| key | API | Kafka | Barnabas |\n|--:|---|---|---|")
    parts += [_served_row(api) for api in KAFKA_APIS if api.key in SERVED]
    parts.append(
        "\nApiVersions says Produce v0 and up, as Kafka does: librdkafka reads from it which compressions work."
    )
    parts.append("\n## Not served\n")
    parts.append("A request for one of these ends its connection; clients that read ApiVersions do not send it.\n")
    for area in dict.fromkeys(api.area for api in missing):
        names = ", ".join(f"{api.name} ({api.key})" for api in missing if api.area == area)
        parts.append(f"* **{area[0].upper()}{area[1:]}**: {names}.")
    parts.append("\nBeyond single APIs:\n")
    parts.append(_BEYOND.strip())
    parts.append(_CLIENTS.rstrip())
    parts.append("\n## Settings\n")
    parts.append("[settings.md](settings.md) lists what a setting does here. Defaults that are not Kafka's:\n")
    parts.append("| setting | here | Kafka |\n|---|---|---|")
    parts += [f"| `{name}` | {ours} | {theirs} |" for name, ours, theirs in _DEFAULTS]
    parts.append(
        "\nAccepted without effect, so that a `server.properties` can be used as it is. All of them that are set"
    )
    parts.append("are named in one warning. Those that ask for protection which would not be given are refused.\n")
    parts += _settings()
    parts.append("\n## Knowingly different\n")
    parts += [f"* {text} (`{place}`)" for place, text in differences()]
    return "\n".join(parts) + "\n"


def _served_row(api: KafkaApi) -> str:
    served = SERVED[api.key]
    versions = "all" if served == VersionRange(api.first, api.last) else _versions(*served)
    return f"| {api.key} | {api.name} | {_versions(api.first, api.last)} | {versions} |"


def _versions(first: int, last: int) -> str:
    return f"v{first}" if first == last else f"v{first} to v{last}"


def _settings() -> Iterator[str]:
    for subject in dict.fromkeys(WITHOUT_EFFECT.values()):
        names = [name for name, its in WITHOUT_EFFECT.items() if its == subject]
        yield f"* **{subject[0].upper()}{subject[1:]}**: {', '.join(f'`{name}`' for name in sorted(names))}."
    examples = {"authorizer.class.name": "x", "remote.log.storage.system.enable": "true"}
    assert all(refusals({name: value}) for name, value in examples.items())


def differences() -> Iterator[tuple[str, str]]:
    """(module, sentences) of every module that says "Where we differ"."""
    source = ROOT / "src" / "barnabas"
    for path in sorted(source.rglob("*.py")):
        doc = ast.get_docstring(ast.parse(path.read_text())) or ""
        for paragraph in doc.split("\n\n"):
            _, marker, text = " ".join(paragraph.split()).partition("Where we differ")
            if marker:
                text = re.sub(r"^( from Kafka)?:\s*", "", text)
                yield str(path.relative_to(source)), text[0].upper() + text[1:]


def main(arguments: list[str]) -> int:
    named = {api.key for api in KAFKA_APIS}
    assert all(key in named for key in SERVED), "an API is served that Kafka has not"
    assert all((api.key in SERVED) != bool(api.area) for api in KAFKA_APIS), "served or in an area, not both"
    if arguments == ["--write"]:
        PAGE.write_text(render())
    else:
        sys.stdout.write(render())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
