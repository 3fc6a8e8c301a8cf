"""What an I/O thread of its own would cost: `python tests/connection/drivers/measure_drivers.py`.

Not a test. The same producer core runs on `SyncDriver`, where whoever waits turns the client, and on the usual design,
in which one background thread does all the work with sockets and application threads wait for it. The broker runs in
its own process. For sources that are not compiled (BARNABAS_PURE=1): a compiled driver has no subclasses.
Figures: docs/decisions/0007-who-drives-the-synchronous-clients.md.
"""

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import barnabas
from barnabas.client.producer import front as producer_module
from barnabas.connection.drivers.sync import POLL_MAX_S, SyncDriver
from barnabas.connection.drivers.waker import Follower

T = TypeVar("T")
VALUE = b"x" * 100


class ThreadDriver(SyncDriver):
    """One thread does all input and output."""

    def _may_lead(self) -> bool:
        return threading.current_thread() is self._background_thread

    def _employ(self) -> None:
        if self._background_thread is None:
            self._background_thread = threading.Thread(target=self._background, daemon=True)
            self._background_thread.start()
        elif self._leader:
            self._waker.wake()

    def turn(self) -> None:
        self.run(lambda: None)

    def run(self, action: Callable[[], T]) -> T:
        with self.lock:
            self._check_open()
            self.client.now = time.monotonic()
            result = action()
            self._employ()
        return result

    def wait(
        self,
        done: Callable[[], bool],
        timeout_s: float | None = None,
        *,
        may_leave: Callable[[], bool] | None = None,
        has_turned: bool = False,
    ) -> bool:
        deadline = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        while True:
            with self.lock:
                if done():
                    return True
                self._check_open()
                if time.monotonic() >= deadline:
                    return False
                follower = Follower(done)
                self._followers.append(follower)
                self._employ()
            self._follow(follower, deadline)

    def deadline_added(self) -> None:
        self._employ()

    def _background_turn(self) -> bool:
        with self.lock:
            if self.closed:
                return False
            self._turn()
            self._wake_followers()
            self._lead(POLL_MAX_S)
        self._call_back()
        return True


def round_trips(producer: barnabas.Producer) -> list[str]:
    """One record there and back, over and over: nothing else runs."""
    took = []
    cpu = time.process_time()
    for _ in range(3000):
        began = time.perf_counter()
        producer.send("t", VALUE).result()
        took.append(time.perf_counter() - began)
    cpu = (time.process_time() - cpu) / len(took)
    took.sort()
    half, most = took[len(took) // 2], took[len(took) * 99 // 100]
    return [f"{half * 1e6:.0f} us", f"{most * 1e6:.0f} us", f"{cpu * 1e6:.0f} us"]


def stream(producer: barnabas.Producer) -> list[str]:
    """`send` as fast as it goes."""
    rate, cost, count = 0.0, float("inf"), 400_000
    for _ in range(5):
        began, cpu = time.perf_counter(), time.process_time()
        for _ in range(count):
            producer.send("t", VALUE)
        producer.flush()
        rate = max(rate, count / (time.perf_counter() - began))
        cost = min(cost, (time.process_time() - cpu) / count)
    return [f"{rate / 1e6:.2f} M/s", f"{cost * 1e6:.2f} CPU-s a million"]


MEASURES = {
    "round trip: p50, p99, CPU": round_trips,
    "send: rate, CPU": stream,
}


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        ready = Path(directory) / "ready"
        command = [sys.executable, "-m", "barnabas", "serve", "--data-dir", f"{directory}/data"]
        command += ["--listen", "127.0.0.1:0", "--ready-file", str(ready)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as broker:
            while not (ready.exists() and ready.read_text().endswith("\n")):
                time.sleep(0.01)
            address = ready.read_text().split()[0]
            with barnabas.Admin(bootstrap_servers=address) as admin:
                admin.create_topics("t")
            try:
                for name, measure in MEASURES.items():
                    for driver in (SyncDriver, ThreadDriver):
                        producer_module.SyncDriver = driver
                        with barnabas.Producer(bootstrap_servers=address, linger_ms=0 if "trip" in name else 5) as it:
                            it.send("t", VALUE).result()
                            print(f"{name:28} {driver.__name__:14} {', '.join(measure(it))}", flush=True)
            finally:
                broker.terminate()


if __name__ == "__main__":
    main()
