"""Makes the responses of the two APIs that change settings: one result for each resource."""

from collections.abc import Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from barnabas.broker.requests.sliced_responses import LazySequence
from barnabas.controller.requests import ConfigResource
from barnabas.errors import KafkaError

__all__ = ["ConfigResult", "all_or_each", "result_responses"]

ConfigResult = tuple[ConfigResource, KafkaError | None]
R = TypeVar("R", covariant=True)


class _ResourceResponse(Protocol[R]):
    def __call__(self, *, error_code: int, error_message: str | None, resource_type: int, resource_name: str) -> R: ...


async def all_or_each(
    change: Coroutine[Any, Any, list[ConfigResult]], changes: Sequence[tuple[ConfigResource, Any]]
) -> list[ConfigResult]:
    """Returns the results of a change, or its failure for every resource."""
    try:
        return await change
    except KafkaError as error:
        return [(resource, error) for resource, _ in changes]


def result_responses(response: _ResourceResponse[R], results: Sequence[ConfigResult]) -> Sequence[R]:
    """Returns the results as objects of the API's class."""

    def one(result: ConfigResult) -> R:
        resource, failure = result
        return response(
            error_code=0 if failure is None else failure.code,
            error_message=None if failure is None else failure.message,
            resource_type=resource.type,
            resource_name=resource.name,
        )

    return LazySequence(results, one)
