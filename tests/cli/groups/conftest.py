"""A broker of their own for each file of tests."""

from cli.own_broker import bootstrap as bootstrap
from cli.own_broker import topic as topic
