"""Offsets as JSON, in options and checkpoints."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.errors import UsageError
from barnabas.spark.source.offsets import Plan, StreamOffset, nested, parse_offsets, parse_stream_offset
from barnabas.types import TopicPartition

names = st.text("abcXYZ019._-", min_size=1, max_size=12)
offset_maps = st.dictionaries(
    st.builds(TopicPartition, names, st.integers(0, 2**31 - 1)), st.integers(0, 2**63 - 1), max_size=6
)
stream_offsets = st.builds(
    lambda offsets, start, plan, ids, initial: StreamOffset(offsets, {} if initial else start, plan, ids, initial),
    offset_maps,
    offset_maps,
    st.builds(Plan, st.integers(0, 10**6), st.integers(0, 10**9)),
    st.dictionaries(names, names, max_size=3),
    st.booleans(),
)


@settings(max_examples=200, deadline=None)
@given(stream_offsets)
def test_a_checkpoint_reads_what_it_wrote(offset: StreamOffset) -> None:
    text = json.dumps(offset.to_json())
    assert parse_stream_offset(json.loads(text)) == offset
    assert json.dumps(parse_stream_offset(json.loads(text)).to_json()) == text


@settings(max_examples=100, deadline=None)
@given(offset_maps)
def test_options_read_what_the_connector_writes(offsets: dict[TopicPartition, int]) -> None:
    assert parse_offsets(json.dumps(nested(offsets)), "startingOffsets") == offsets
    assert parse_stream_offset(nested(offsets)).offsets == offsets


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["@start", "@plan", "@ids", "t", "0"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(["@start", "@plan", "@ids", "@new", "t"]), anything, max_size=4))
def test_a_damaged_checkpoint_is_a_named_error(document: dict[str, Any]) -> None:
    try:
        found = parse_stream_offset(document)
    except UsageError as error:
        said = str(error)
    else:
        said = "checkpoint" * (parse_stream_offset(found.to_json()) == found)
    assert "checkpoint" in said
