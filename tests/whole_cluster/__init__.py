"""The whole cluster on a simulated machine: real brokers, registry and clients, whose time, threads, sockets and
randomness come from one seed."""
