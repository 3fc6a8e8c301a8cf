"""What a round takes for a defect."""

from cluster.rounds import bad_output

BY_PYTHON = """ERROR:root:code for hash md5 was not found.
Traceback (most recent call last):
  File "/usr/lib/python3.11/hashlib.py", line 307, in <module>
    globals()[__func_name] = __get_hash(__func_name)
ValueError: unsupported hash type md5
Traceback (most recent call last):
  File "<frozen runpy>", line 189, in _run_module_as_main
  File "<frozen runpy>", line 112, in _get_module_details
MemoryError
"""
BY_A_BROKER = """barnabas broker 3 is ready
Traceback (most recent call last):
  File "<frozen runpy>", line 189, in _run_module_as_main
  File "/barnabas/broker/server.py", line 25, in <module>
MemoryError
"""


def test_a_traceback_is_a_defect_unless_python_has_no_memory_for_itself() -> None:
    assert bad_output(BY_PYTHON) == []
    found = bad_output(BY_A_BROKER + BY_PYTHON + BY_A_BROKER)
    assert [each.rpartition("\n")[2] for each in found] == ["MemoryError", "MemoryError"]
    assert all("server.py" in each for each in found)
