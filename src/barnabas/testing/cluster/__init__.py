"""Several brokers as one cluster, in the test process or as processes of their own: `Cluster`, with the `Links` between
its brokers. It must never be needed by a running broker.
"""
