"""One module for each API of Kafka, in folders by subject."""

from typing import Final

__all__ = ["HANDLER_MODULES"]

_FOLDERS: Final = {
    "records": "produce fetch list_offsets delete_records offset_for_leader_epoch",
    "topics": (
        "metadata create_topics delete_topics create_partitions describe_topic_partitions elect_leaders "
        "alter_partition_reassignments list_partition_reassignments"
    ),
    "groups": "find_coordinator join_group sync_group heartbeat leave_group offset_commit offset_fetch offset_delete "
    "describe_groups list_groups delete_groups",
    "transactions": "init_producer_id add_partitions_to_txn add_offsets_to_txn txn_offset_commit end_txn "
    "write_txn_markers describe_transactions list_transactions describe_producers",
    "cluster": "api_versions describe_cluster describe_log_dirs alter_replica_log_dirs unregister_broker "
    "update_features",
    "peers": "sasl_handshake sasl_authenticate peer_hello envelope alter_partition broker_heartbeat push_metadata "
    "create_missing_topics give_up_replicas",
    "configs": "describe_configs alter_configs incremental_alter_configs list_config_resources",
}
HANDLER_MODULES: Final = {
    name: f"{__name__}.{folder}.{name}" for folder, names in _FOLDERS.items() for name in names.split()
}
"""The module of each API by the API's name in lower case. The dispatcher imports a module when its API is first
used."""
