"""The incarnation of a registry's file: a random number that a copy of the file does not share.

`cp` of a data directory copies the registry with all that it says of brokers: their processes, addresses and the secret
of the cluster. Whoever opens the file first compares where it lies with what stands in it. Elsewhere it is a copy, or
was moved, or the machine has been started anew, perhaps as the clone of another one: it becomes an incarnation of its
own, and no process of before belongs to it.

A file may be seen under several names at a time: two containers may be told different boot ids, two machines have
different numbers for the same file server. So it stays what it is while a broker holds its lock beside it, or one of a
release that knows no locks may run.
"""

import os
from typing import Final

from barnabas.registry.broker_locks import BrokerLocks
from barnabas.registry.sqlite_file import SqliteFile

__all__ = ["HAS_LOCK", "INCARNATION", "LOCKS", "settle_incarnation"]

INCARNATION: Final = "ALTER TABLE state ADD COLUMN incarnation TEXT NOT NULL DEFAULT ''"
"""The number and the place of the file, such as `f3a0… <boot id> 2049:1234`; '' in the files of releases before."""
LOCKS: Final = "CREATE TABLE IF NOT EXISTS locks (node_id INTEGER PRIMARY KEY, epoch INTEGER)"
"""The broker epoch in which each broker has last taken its lock; releases that know no locks leave it as it is."""
HAS_LOCK: Final = "brokers.epoch IS (SELECT epoch FROM locks WHERE locks.node_id = brokers.node_id)"
"""Whether a broker holds its lock."""
_BYTES: Final = 8


def settle_incarnation(db: SqliteFile, boot: str, locks: BrokerLocks) -> str:
    """Returns the incarnation of the file, a new one if it is a copy. Within a transaction."""
    place = f"{boot} {db.number}"
    (found,) = db.row("SELECT incarnation FROM state")
    known, _, known_place = found.partition(" ")
    if known and (known_place == place or locks.others_are_held() or _is_used_without_locks(db, locks)):
        return str(known)
    if known:
        db.execute("UPDATE brokers SET process = '', peer_endpoint = ''")
        db.execute("DELETE FROM locks")
    incarnation = os.urandom(_BYTES).hex()
    db.execute("UPDATE state SET incarnation = ?", (f"{incarnation} {place}",))
    return incarnation


def _is_used_without_locks(db: SqliteFile, locks: BrokerLocks) -> bool:
    rows = db.execute(f"SELECT node_id, process, {HAS_LOCK} FROM brokers").fetchall()
    return any(not has_lock and locks.may_run(node_id, process, has_lock) for node_id, process, has_lock in rows)
