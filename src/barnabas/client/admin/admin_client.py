"""The admin client's state machine, from which both fronts make their methods."""

from barnabas.client.admin.cluster import ClusterOperations
from barnabas.client.admin.configs import ConfigOperations
from barnabas.client.admin.group_coordinators import GroupCoordinatorOperations
from barnabas.client.admin.groups import GroupOperations
from barnabas.client.admin.log_dirs import LogDirOperations
from barnabas.client.admin.reassignments import ReassignmentOperations
from barnabas.client.admin.transactions import TransactionOperations

__all__ = ["KafkaAdminClient"]


class KafkaAdminClient(
    GroupCoordinatorOperations,
    ReassignmentOperations,
    ClusterOperations,
    LogDirOperations,
    ConfigOperations,
    GroupOperations,
    TransactionOperations,
):
    """All operations. `timeout` is in seconds everywhere; None stands for default.api.timeout.ms."""
