"""Files, environment and command line become one broker's settings, or one line that says what is wrong."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.config import sources
from barnabas.errors import UsageError, WrongSettings

KRAFT_PROPERTIES = """
# The file that ships with Kafka, shortened
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
transaction.state.log.replication.factor=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def load(
    tmp_path: Path, text: str = "", environment: dict[str, str] | None = None, *arguments: str
) -> sources.LoadedConfig:
    path = tmp_path / "server.properties"
    path.write_text(text)
    return sources.load([path], environment or {}, arguments)


def test_kafkas_own_file_is_accepted_with_one_warning(tmp_path: Path) -> None:
    config, warnings = load(tmp_path, KRAFT_PROPERTIES)
    assert config.node_id == 1
    assert [str(endpoint) for endpoint in config.advertised_endpoints] == ["PLAINTEXT://localhost:9092"]
    assert len(warnings) == 1
    assert "num.io.threads" in warnings[0]
    assert "num.partitions" not in warnings[0]


def test_a_limit_of_a_listener_that_is_not_there_is_warned_of(tmp_path: Path) -> None:
    text = "listeners=PLAINTEXT://:1,OUTSIDE://:2\nlistener.security.protocol.map=PLAINTEXT:PLAINTEXT,OUTSIDE:PLAINTEXT\nlistener.name.outside.max.connections=3\n"
    assert load(tmp_path, text).warnings == ()
    (warning,) = load(tmp_path, text + "listener.name.outsid.max.connections=3\n").warnings
    assert (
        warning
        == "listener.name.outsid.max.connections is of no listener: listeners for clients are PLAINTEXT, OUTSIDE"
    )


def test_command_line_wins_over_environment_over_file(tmp_path: Path) -> None:
    file = "num.partitions=2\nlog.segment.bytes=200\nmessage.max.bytes=20\n"
    environment = {"BARNABAS_LOG_SEGMENT_BYTES": "300", "BARNABAS_MESSAGE_MAX_BYTES": "30", "OTHER": "x"}
    config = load(tmp_path, file, environment, "message.max.bytes=40").config
    assert (config.num_partitions, config.log_segment_bytes, config.message_max_bytes) == (2, 300, 40)
    loaded = sources.load([], {}, ["num.partitions=3"], options={"num.partitions": "5"})
    assert loaded.config.num_partitions == 5


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("\nlog.segment.byte=1", ":2: log.segment.byte is not a setting of a broker; did you mean log.segment.bytes?"),
        ("log.segment.bytes=ten", "Invalid value ten for configuration log.segment.bytes: Not a number of type INT"),
        ("log.segment.bytes=3", "Value must be at least 14; it must be an int in [14,...]"),
        ("authorizer.class.name=kafka.Acl", "access control is not offered"),
        ("remote.log.storage.system.enable=true", "tiered storage is not offered"),
        ("security.inter.broker.protocol=SSL", "only PLAINTEXT is served"),
        ("process.roles=controller", "each broker can be it"),
        ("listeners=SASL_SSL://:9092", "asks for SASL_SSL, which is not served"),
        ("node.id=\\u00zz", "four hexadecimal digits"),
    ],
)
def test_what_cannot_be_honoured_is_refused_in_one_line(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(UsageError) as error:
        load(tmp_path, text)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


_REASON = "access control is not offered, and without it everybody may do everything"


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    text = "log.segment.byte=1\nnum.partitions=many\nauthorizer.class.name=kafka.Acl\ndurable=1\n"
    with pytest.raises(WrongSettings) as refused:
        load(tmp_path, text, {"BARNABAS_LOG_SEGMENTS_BYTES": "1"}, "log.retention.hour=3")
    place = tmp_path / "server.properties"
    assert [finding.partition("; ")[0] for finding in refused.value.findings] == [
        "environment variable BARNABAS_LOG_SEGMENTS_BYTES names no setting of a broker",
        f"{place}:1: log.segment.byte is not a setting of a broker",
        f"{place}:2: Invalid value many for configuration num.partitions: Not a number of type INT",
        f"{place}:4: durable is not a setting of a broker",
        "--set log.retention.hour=3: log.retention.hour is not a setting of a broker",
        f"{place}:3: authorizer.class.name=kafka.Acl cannot be honoured: " + _REASON,
    ]
    for finding, close in zip(refused.value.findings, ("log.segment.bytes", "log.segment.bytes"), strict=False):
        assert f"did you mean {close}?" in finding.replace("BARNABAS_LOG_SEGMENT_BYTES", "log.segment.bytes")
    assert str(refused.value) == "; ".join(refused.value.findings)


def test_names_of_older_kafkas_and_of_plugins_are_told_and_not_refused(tmp_path: Path) -> None:
    text = """
port=9092
controlled.shutdown.max.retries=3
num.io.threads=8
cruise.control.metrics.topic.auto.create=true
confluent.license.topic.replication.factor=1
jmx.port=9999
kafka.timeline.metrics.hosts=a
auto.include.jmx.reporter=true
group.share.max.groups=10
client.quota.callback.static.produce=1000
metrics.jmx.include=a
broker.interceptor.class=a.B
principal.builder.url=http://a
"""
    (warning,) = load(tmp_path, text).warnings
    kafka, _, others = warning.partition("; and of no Kafka, as those of plugins are: ")
    assert kafka == (
        "settings of Kafka without effect here: auto.include.jmx.reporter, controlled.shutdown.max.retries, "
        "group.share.max.groups, num.io.threads, port (now listeners)"
    )
    assert others == (
        "broker.interceptor.class, client.quota.callback.static.produce, confluent.license.topic.replication.factor, "
        "cruise.control.metrics.topic.auto.create, jmx.port, kafka.timeline.metrics.hosts, metrics.jmx.include, "
        "principal.builder.url"
    )


@pytest.mark.parametrize("name", ["principal.builder.clas", "metrics.num.sample", "replica.selector.clas"])
def test_a_mistyped_name_is_none_of_a_plugin(tmp_path: Path, name: str) -> None:
    with pytest.raises(WrongSettings, match="did you mean"):
        load(tmp_path, f"{name}=1")


def test_variables_of_kafkas_containers_are_named(tmp_path: Path) -> None:
    environment = {
        "KAFKA_NUM_PARTITIONS": "7",
        "KAFKA_ADVERTISED_HOST_NAME": "a",
        "KAFKA_LISTENERS": "SSL://:9093",
        "KAFKA_ADVERTISED_LISTENERS": "OUT://a:9094",
        "KAFKA_LISTENER_NAME_OUT_SSL_KEYSTORE_LOCATION": "/a",
        "KAFKA_SUPER_USERS": "User:a",
        "KAFKA_CONFLUENT_METRICS_ENABLE": "true",
        "KAFKA_HEAP_OPTS": "-Xmx1g",
        "KAFKA_PORT": "tcp://10.0.0.1:9092",  # by Kubernetes, for services
        "KAFKA_CONFLUENT_SERVICE_HOST": "10.0.0.1",
        "KAFKA_CONFLUENT_PORT_9092_TCP_ADDR": "10.0.0.1",
    }
    (warning,) = load(tmp_path, "", environment).warnings
    assert warning == (
        "environment variables KAFKA_ADVERTISED_HOST_NAME, KAFKA_ADVERTISED_LISTENERS, KAFKA_CONFLUENT_METRICS_ENABLE, "
        "KAFKA_LISTENERS, KAFKA_LISTENER_NAME_OUT_SSL_KEYSTORE_LOCATION, KAFKA_NUM_PARTITIONS, KAFKA_SUPER_USERS are "
        "not read: settings of a broker begin with BARNABAS_, such as BARNABAS_NUM_PARTITIONS"
    )


def test_variables_of_bitnamis_containers_are_named(tmp_path: Path) -> None:
    (warning,) = load(tmp_path, "", {"KAFKA_CFG_NUM_PARTITIONS": "7", "KAFKA_CFG_OTHER": "a"}).warnings
    assert warning == (
        "environment variables KAFKA_CFG_NUM_PARTITIONS, KAFKA_CFG_OTHER are not read: settings of a broker begin with "
        "BARNABAS_, such as BARNABAS_NUM_PARTITIONS"
    )


def test_environment_and_set_mistakes(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean BARNABAS_LOG_SEGMENT_BYTES"):
        load(tmp_path, "", {"BARNABAS_LOG_SEGMENT_BYTE": "1"})
    with pytest.raises(UsageError, match="environment variable BARNABAS_NODE_ID: Invalid value x"):
        load(tmp_path, "", {"BARNABAS_NODE_ID": "x"})
    with pytest.raises(UsageError, match="must be NAME=VALUE"):
        load(tmp_path, "", {}, "novalue")
    with pytest.raises(UsageError, match=r"--set log\.segmnt\.bytes=1: log\.segmnt\.bytes is not"):
        load(tmp_path, "", {}, "log.segmnt.bytes=1")
    with pytest.raises(UsageError, match=r"cannot read the settings file .*: No such file"):
        sources.load([tmp_path / "missing"], {})
    with pytest.raises(UsageError, match=r"environment variable BARNABAS_BROKER_RACK=.* is not UTF-8"):
        load(tmp_path, "", {"BARNABAS_BROKER_RACK": "\udcff"})
    assert load(tmp_path, "", {"BARNABAS_CONFIG": "f"}).warnings == ()


def test_properties_syntax() -> None:
    text = (
        "# comment\n! comment\n\n  a=1\nb : 2\nc 3\nd\\=x=4\ne=one,\\\n   two\nf=tab\\there\\u0041\n"
        "g=back\\\\slash\\\\\nh==5\ni\nj=  trailing \r\nk=1\nk=2\nl=end\\"
    )
    assert sources.parse_properties(text) == {
        "a": "1", "b": "2", "c": "3", "d=x": "4", "e": "one,two", "f": "tab\thereA", "g": "back\\slash\\", "h": "=5",
        "i": "", "j": "trailing ", "k": "2", "l": "end",
    }  # fmt: skip


def test_characters_of_two_escapes_are_put_together_and_halves_refused() -> None:
    assert sources.parse_properties("rack=\\ud83d\\udeeb\\u0041") == {"rack": "🛫A"}
    for half in ("\\ud83d", "\\udeeb\\ud83d", "a\\udcff"):
        with pytest.raises(UsageError, match="half a character"):
            sources.parse_properties(f"rack={half}")


@given(st.text(max_size=80))
def test_no_text_is_too_strange(text: str) -> None:
    if "\\u" in text:  # the one thing that can be wrong
        text = text.replace("\\u", "\\n")
    parsed = sources.parse_properties(text)
    assert all(isinstance(name, str) and isinstance(value, str) for name, value in parsed.items())


@given(st.dictionaries(st.text("ab.=: \\#!\t", min_size=1, max_size=8), st.text("xy=: \\#!\t", max_size=8), max_size=5))
def test_what_java_would_write_is_read_back(settings: dict[str, str]) -> None:
    def escape(text: str, *, name: bool) -> str:
        escaped = text.replace("\\", "\\\\").replace("\t", "\\t")
        for character in "#!=:":
            escaped = escaped.replace(character, "\\" + character)
        leading = len(escaped) - len(escaped.lstrip(" "))
        return escaped.replace(" ", "\\ ") if name else "\\ " * leading + escaped[leading:]

    text = "".join(f"{escape(name, name=True)}={escape(value, name=False)}\n" for name, value in settings.items())
    assert sources.parse_properties(text) == settings
