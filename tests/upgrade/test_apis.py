"""The APIs of two releases in one cluster."""

import json
import os
import subprocess
import sys
from typing import NamedTuple

import pytest

from barnabas.protocol.apis import FORWARDABLE, FORWARDED_IN_PART, SERVED, SERVED_TO_BROKERS, ApiKey, VersionRange
from upgrade.release_before import source_of_release_before

TELL = """
import json
from barnabas.protocol import apis
forwarded = sorted(apis.FORWARDABLE | getattr(apis, "FORWARDED_IN_PART", frozenset()))
print(json.dumps([*(list(map(list, served.items())) for served in (apis.SERVED, apis.SERVED_TO_BROKERS)), forwarded]))
"""


class Apis(NamedTuple):
    served: dict[int, VersionRange]
    served_to_brokers: dict[int, VersionRange]
    forwarded: set[int]


@pytest.fixture(scope="module")
def before() -> Apis:
    """The APIs of the release before."""
    told = subprocess.run(
        [sys.executable, "-c", TELL],
        env={**os.environ, "PYTHONPATH": str(source_of_release_before())},
        capture_output=True,
        check=True,
    )
    served, served_to_brokers, forwarded = json.loads(told.stdout)
    ranges = ({key: VersionRange(*versions) for key, versions in apis} for apis in (served, served_to_brokers))
    return Apis(*ranges, set(forwarded))


def test_nothing_is_taken_from_clients(before: Apis) -> None:
    for key, versions in before.served.items():
        assert SERVED[key].first <= versions.first, ApiKey(key).name
        assert SERVED[key].last >= versions.last, ApiKey(key).name


def test_brokers_of_both_releases_find_a_version(before: Apis) -> None:
    for key, versions in before.served_to_brokers.items():
        present = SERVED_TO_BROKERS[key]
        assert max(present.first, versions.first) <= min(present.last, versions.last), ApiKey(key).name


def test_no_client_sends_what_a_controller_of_the_release_before_does_not_read(before: Apis) -> None:
    """A broker forwards a client's request in the version that it has. So a new version of such an API is served one
    release after the controllers have learned to read it."""
    for key in (FORWARDABLE | FORWARDED_IN_PART) & before.forwarded:
        assert SERVED[key].last <= before.served[key].last, ApiKey(key).name
