"""`bench` lies beside `src` and is not installed, the wire of the broker's tests beside this folder."""

import sys
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[2]))
sys.path.append(str(HERE.parents[1]))

#: It reads with confluent-kafka at its first line.
collect_ignore = [] if find_spec("confluent_kafka") else ["test_prepared_transactions.py"]
