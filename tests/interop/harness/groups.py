"""Waiting for consumer groups to settle."""

from __future__ import annotations

import time
from typing import Any

from .driver import Driver

SETTLE_TIMEOUT_S = 90.0

Member = tuple[Driver, str]


def join(driver: Driver, group: str, topics: list[str], **settings: Any) -> Member:
    """Open a consumer in the group; its assignment comes later."""
    name = driver.new_id()
    driver.call("open", id=name, group=group, topics=topics, fetch_wait_ms=100, **settings)
    return driver, name


def assigned(member: Member) -> list[tuple[str, int]]:
    driver, name = member
    return sorted((topic, number) for topic, number in driver.call("assignment", id=name)["partitions"])


def settle(members: list[Member], partitions: int, *, each: list[int] | None = None) -> list[list[tuple[str, int]]]:
    """Wait until the members have `partitions` in all, none twice and all at once; gives who has which.

    `each` is the size of each one's share in any order; by default as even as can be.
    """
    share, extra = divmod(partitions, len(members))
    sizes = sorted(each or [share + (index < extra) for index in range(len(members))])
    deadline = time.monotonic() + SETTLE_TIMEOUT_S
    while True:
        shares = [assigned(member) for member in members]
        whole = [place for one in shares for place in one]
        if len(set(whole)) == len(whole) == partitions and sorted(map(len, shares)) == sizes:
            return shares
        if time.monotonic() > deadline:
            parts = [f"{driver.name}: {short(share)}" for (driver, _), share in zip(members, shares, strict=True)]
            told = "; ".join(parts)
            raise AssertionError(f"the group did not settle within {SETTLE_TIMEOUT_S:g} s: {told}")
        time.sleep(0.05)


def short(share: list[tuple[str, int]]) -> str:
    return f"{len({topic for topic, _ in share})} topics, partitions {[number for _, number in share]}"


def leave(member: Member) -> None:
    driver, name = member
    driver.call("close", id=name)


def take(member: Member, count: int, timeout_ms: int = 60_000) -> list[dict[str, Any]]:
    driver, name = member
    records: list[dict[str, Any]] = driver.call("take", id=name, count=count, timeout_ms=timeout_ms)["records"]
    return records
