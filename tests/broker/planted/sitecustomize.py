"""Plants a bug in each Python program that a test of `test_planted_bugs.py` starts."""

import os
from pkgutil import resolve_name

import pytest

if name := os.environ.get("PLANTED_BUG"):
    resolve_name(name)(pytest.MonkeyPatch())
