"""A topic's settings as the log reads them."""

import dataclasses
import typing

from barnabas.config.log_config import DEFAULT_LOG_CONFIG, LogConfig
from barnabas.config.topic import log_config, topic_defaults


def test_log_config_has_the_defaults_of_the_definitions() -> None:
    assert log_config({}, topic_defaults({})) == DEFAULT_LOG_CONFIG
    hints = typing.get_type_hints(LogConfig)
    for field in dataclasses.fields(LogConfig):
        value = getattr(DEFAULT_LOG_CONFIG, field.name)
        assert isinstance(value, typing.get_origin(hints[field.name]) or hints[field.name]), field.name


def test_a_compacted_log_rolls_before_its_records_are_overdue() -> None:
    assert LogConfig(segment_ms=10, max_compaction_lag_ms=5).roll_ms == 10
    compacted = LogConfig(segment_ms=10, max_compaction_lag_ms=5, cleanup_policy=frozenset(("compact", "delete")))
    assert (compacted.compacted, compacted.roll_ms) == (True, 5)
    assert dataclasses.replace(compacted, max_compaction_lag_ms=50).roll_ms == 10
    assert not DEFAULT_LOG_CONFIG.log_append_time
    assert LogConfig(message_timestamp_type="LogAppendTime").log_append_time
