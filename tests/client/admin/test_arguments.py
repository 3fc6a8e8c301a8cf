"""Arguments of the administrator's operations, which are checked before any request."""

import inspect
import itertools
from typing import Any

import pytest

from barnabas.client.admin.admin_client import KafkaAdminClient
from barnabas.client.admin.arguments import READERS, bind
from barnabas.client.admin.cluster import FeatureUpdate
from barnabas.client.admin.configs import ConfigChange, ConfigResource
from barnabas.client.admin.groups import MemberToRemove
from barnabas.errors import UsageError
from barnabas.types import TopicPartition


def read(name: str, value: Any) -> Any:
    return READERS[name](name, value)


def test_every_parameter_of_every_operation_is_read() -> None:
    calls = inspect.getmembers(KafkaAdminClient, inspect.iscoroutinefunction)
    public = [call for name, call in calls if not name.startswith("_") and name != "topics_with_records"]
    parameters = itertools.chain.from_iterable(inspect.signature(call).parameters for call in public)
    assert {name for name in parameters if name != "self"} == READERS.keys()


def test_arguments_are_read_by_the_names_of_their_parameters() -> None:
    def operation(admin: str, names: Any, *, timeout: float | None = None, validate_only: bool = False) -> Any:
        return admin, names, timeout, validate_only

    bound: Any = bind(operation)
    assert bound(("orders",), {"timeout": 5})("admin") == ("admin", ["orders"], 5, False)
    assert bound((), {"names": ["a", "b"], "timeout": None})("admin") == ("admin", ["a", "b"], None, False)
    for given, named in (((5,), {}), ((None,), {}), (("a",), {"timeout": "5"}), (("a",), {"validate_only": None})):
        with pytest.raises(UsageError):
            bound(given, named)
    for given, named in ((("a",), {"no_such": 1}), (("a", "b"), {})):
        with pytest.raises(TypeError):
            bound(given, named)("admin")


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("at", {("t", 0): "latest", TopicPartition("t", 1): 5}, {("t", 0): "latest", ("t", 1): 5}),
        ("group_ids", "g", ["g"]),
        ("resources", [("topic", "t"), ConfigResource("broker", "1")], [("topic", "t"), ("broker", "1")]),
        ("changes", {("topic", "t"): {"a": "1", "b": None}}, {("topic", "t"): {"a": "1", "b": None}}),
        ("changes", {("topic", "t"): [ConfigChange("a", "1", "append")]}, {("topic", "t"): [("a", "1", "append")]}),
        ("members", [MemberToRemove("m")], [MemberToRemove("m")]),
        ("isolation", "read_committed", "read_committed"),
        ("updates", {"a": 1, "b": FeatureUpdate(0, True)}, {"a": (1, False, False), "b": (0, True, False)}),
    ],
)
def test_what_is_taken(name: str, given: Any, expected: Any) -> None:
    assert read(name, given) == expected


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [
        ("at", {("t", 0): "soon"}, "use one of .*, or a time in ms"),
        ("at", {"t": 0}, "at"),
        ("isolation", "serializable", "use one of read_uncommitted, read_committed"),
        ("resources", [("queue", "q")], "'queue' has no settings; use one of"),
        ("resources", [("broker", "one")], "its name is its node id"),
        ("resources", ["topic"], r'write \("topic", name\)'),
        ("changes", {("topic", "t"): [ConfigChange("a", "1", "double")]}, "use one of the operations"),
        ("members", [MemberToRemove()], "members"),
        ("producer_epoch", 2**15, "producer_epoch"),
        ("group_ids", [5], "group_ids"),
        ("updates", {"a": -1}, "updates"),
        ("updates", {"a": (1, True)}, r"FeatureUpdate\(1, downgrade=True\)"),
    ],
)
def test_what_is_refused(name: str, given: Any, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        read(name, given)
