"""The messages that only brokers of Barnabas send to each other, one module for each API.

They are declared by hand in the form of `protocol/messages`, and versioned like Kafka's. A rolling upgrade has brokers
of two releases in one cluster: new fields are tagged, or get a new version.
"""
