"""One simulated Kafka cluster, for the tests of clients and of their state machines.

`cluster.Cluster` has brokers, logs, coordinators, a virtual clock and connections that tests control; `producer`,
`consumer` and `membership` put clients in front of it; `producer_chaos` and `transaction_chaos` let faults happen to a
producer. No test uses sockets or real time here.
"""
