"""Plants a bug in each Python program that a test of `test_planted_bugs.py` starts."""

import os

import pytest

from broker import planted_bugs

if name := os.environ.get("PLANTED_BUG"):
    getattr(planted_bugs, name)(pytest.MonkeyPatch())
