"""SASL on the server's side.

Main class: `scram.ScramServer`. It must never do I/O.
"""
