"""The registry in ZooKeeper, for brokers on several machines.

Main class: `ZooKeeperRegistry`. `session` alone uses kazoo, which the extra `zookeeper` brings; `znodes` has the paths
and the JSON, which are Kafka's as far as Kafka has them.
"""
