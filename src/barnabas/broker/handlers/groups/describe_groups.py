"""DescribeGroups v0-v6. An unknown group is dead; from v6 on that is GROUP_ID_NOT_FOUND with a message (KIP-1043).

A tagged field that Kafka does not have tells our own clients the group's last rebalances with their reasons.
"""

import json
from collections.abc import Callable

from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.requests.sliced_responses import LazySequence
from barnabas.broker.services import BrokerServices
from barnabas.coordinator.event_loop import MaybeFuture, answer
from barnabas.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse

NOT_ASKED = -(2**31)
GROUP_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
"""READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS: the bits of KIP-430, all allowed without an authorizer."""


def handle(
    broker: BrokerServices, request: DescribeGroupsRequest, context: RequestContext
) -> MaybeFuture[DescribeGroupsResponse]:
    ours = context.connection.client_software.startswith("barnabas ")

    def start(reply: Callable[[DescribeGroupsResponse], None]) -> None:
        def completed(group: DescribedGroup) -> DescribedGroup:
            asked = request.include_authorized_operations and group.error_code == 0
            group.authorized_operations = GROUP_OPERATIONS if asked else NOT_ASKED
            if ours and group.error_code == 0:
                group.rebalances = json.dumps([event.as_dict() for event in broker.groups.history(group.group_id)])
            return group

        def finish(groups: list[DescribedGroup]) -> None:
            reply(DescribeGroupsResponse(groups=LazySequence(groups, completed)))

        group_ids = list(dict.fromkeys(request.groups))
        broker.groups.describe_groups(group_ids, api_version=context.api_version, reply=finish)

    return answer(broker.loop, start)
