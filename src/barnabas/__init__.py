"""Barnabas: the system that Apache Kafka describes, in Python.

The public doors are `barnabas.testing` (a broker inside your test process), `barnabas.client` and the command
`barnabas`. Everything imports lazily: `import barnabas` itself costs nothing.
"""

__version__ = "0.1.0"
