"""The compiled part of the package, by mypyc where that is possible: the clients, and a record's way through a broker.

Everything else stands in pyproject.toml. Without a C compiler, or if mypyc fails, the install goes on and the same
files run as plain Python, ten to sixty times slower; `barnabas --version` tells. In a checkout `pip install -e .` or
`python setup.py build_ext --inplace` puts them beside their sources. BARNABAS_PURE=1 asks for plain Python, and
BARNABAS_COMPILED=1 for an error instead of it: for a wheel that is given to others.
"""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

KERNELS = [
    f"src/barnabas/records/compiled/{name}.py"
    for name in (
        "record_walk",
        "consumer_records",
        "record_columns",
        "bulk_rows",
        "offset_map",
        "batch_filter",
    )
]
KERNELS += [
    f"src/barnabas/protocol/{name}.py" for name in ("fetch", "fetch_session", "follower_fetch", "primitives", "produce")
]
KERNELS += [f"src/barnabas/client/producer/{name}.py" for name in ("producer_batch", "record_appender")]
# what every request of a client goes through: half of the time that a record takes there and back was interpreted
KERNELS += [
    f"src/barnabas/{name}.py"
    for name in (
        *(
            f"connection/{part}"
            for part in (
                *("cluster", "coordinators", "metadata", "metadata_updater", "network_client", "promise", "targets"),
                *("timers", "broker/broker_connection", "broker/client_request", "broker/cluster_connections"),
                *("drivers/channel", "drivers/channels", "drivers/signals"),
                "drivers/sync",
            )
        ),
        *(
            f"client/fetch/{part}"
            for part in ("aborted_transactions", "fetch_buffer", "fetch_session", "fetcher", "positions", "sections")
        ),
        *(f"client/consumer/{part}" for part in ("kafka_consumer", "subscription_state")),
        *(
            f"client/producer/{part}"
            for part in (
                *("kafka_producer", "partition_batches", "partitioner", "producer_id"),
                *("record_accumulator", "sender", "drivers/sync"),
            )
        ),
    )
]
# what every record goes through in the brokers
KERNELS += [
    f"src/barnabas/{name}.py"
    for name in (
        "protocol/framing",
        *(
            f"network/{part}"
            for part in ("after_requests", "connection", "page_cache", "queued_responses", "time_slicing")
        ),
        *("broker/delayed_produce", "broker/purgatory", "broker/requests/dispatch", "broker/requests/request_context"),
        *(f"broker/cluster/{part}" for part in ("follower_fetch_sessions", "replica_fetcher")),
        *(f"broker/peers/{part}" for part in ("inter_broker_dispatcher", "peer_connections", "session")),
        "connection/drivers/aio",
        *(f"broker/handlers/{part}" for part in ("peers/fetch", "records/fetch", "records/produce")),
        *(f"replication/{part}" for part in ("follower", "leader_state", "partition", "refused_batches", "replica")),
        *(f"log/{part}" for part in ("batch_scan", "leader_epoch_cache", "log_offsets", "log_segment", "log_segments")),
        *("log/producers/producer_state_manager", "log/unified_log"),
        *("records/batch", "records/validation"),
    )
]
GROUP = "barnabas.records.compiled.record_walk"
"""What mypyc's shared library is named after; this puts it beside its modules, not outside the package."""
BUILD = "build"
UNCOMPILED = {"egg_info", "dist_info", "sdist"}
"""The commands for metadata and sources. Installers run them first and each would wait for mypyc, whose output would be
taken for sources."""


def stays_plain(reason: object) -> None:
    if os.environ.get("BARNABAS_COMPILED") == "1":
        sys.exit(f"barnabas: the compiled modules cannot be built, and BARNABAS_COMPILED=1 asks for them: {reason}")
    sys.stderr.write(f"barnabas: the record code stays plain Python: {reason}\n")


def extensions() -> list[Extension]:
    """The kernels as C extensions (mypyc makes one of code and a door to it for each); none if they cannot be made."""
    if os.environ.get("BARNABAS_PURE") == "1" or UNCOMPILED.intersection(sys.argv):
        return []
    try:
        from mypyc.build import mypycify

        # A file of C for each module: they are compiled side by side, and smaller ones take a third less time in all.
        options = {"opt_level": "3", "debug_level": "0", "target_dir": BUILD, "group_name": GROUP, "multi_file": True}
        found = list(mypycify(["--follow-imports=silent", *KERNELS], **options))
    # ImportError, CompileError or SystemExit, depending on what is missing
    except (Exception, SystemExit) as error:
        stays_plain(error or type(error).__name__)
        return []
    for extension in found:  # mypyc puts the group's headers there, and its files elsewhere
        extension.include_dirs.append(os.path.join(BUILD, *GROUP.split(".")[:-1]))
    return found


class BuildAllOrNone(build_ext):
    """One of the extensions without the others would hide the source and then fail to import."""

    def build_extensions(self) -> None:
        self.parallel = self.parallel or os.cpu_count() or 1
        try:
            with ThreadPoolExecutor(self.parallel) as pool:
                self._share_compiler(pool)
                super().build_extensions()
        except Exception as error:
            stays_plain(error)
            for extension in self.extensions:
                Path(self.get_ext_fullpath(extension.name)).unlink(missing_ok=True)
            self.extensions = []

    def _share_compiler(self, pool: ThreadPoolExecutor) -> None:
        """setuptools builds several extensions at once, but the files of one in turn, and nearly all are in one."""
        compile_in_turn = self.compiler.compile

        def compile_at_once(sources: list[str], *arguments: object, **options: object) -> list[str]:
            largest_first = sorted(sources, key=os.path.getsize, reverse=True)
            done = count(1)

            def compile_one(source: str) -> list[str]:
                made = compile_in_turn([source], *arguments, **options)
                if len(sources) > 1:
                    name = Path(source).stem.removeprefix("__native_").replace("___", ".")
                    sys.stderr.write(f"barnabas: compiled {next(done)} of {len(sources)}: {name}\n")
                return made

            return [made for each in pool.map(compile_one, largest_first) for made in each]

        self.compiler.compile = compile_at_once


setup(ext_modules=extensions(), cmdclass={"build_ext": BuildAllOrNone})
