"""Reports the lag and the throughput of streaming queries in the log and to Prometheus."""

import json
import logging
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pyspark.sql.streaming import StreamingQueryListener

from barnabas.spark.query_progress import QueryProgress, prometheus_text

__all__ = ["BarnabasQueryListener"]

_log = logging.getLogger("barnabas.spark")


class BarnabasQueryListener(StreamingQueryListener):
    """Logs each batch of a query after `spark.streams.addListener(BarnabasQueryListener())`. `text()` returns the
    metrics for Prometheus; with a port they are served at `http://host:port/metrics` until `close`."""

    def __init__(self, port: int | None = None, *, host: str = "127.0.0.1") -> None:
        self._lock = threading.Lock()
        self._queries: dict[str, QueryProgress] = {}
        self._server: ThreadingHTTPServer | None = None
        if port is not None:
            self._serve(host, port)

    # --- events of Spark --------------------------------------------------------------------------------------------

    def onQueryStarted(self, event: Any) -> None:
        _log.info("query %s starts, run %s", event.name or event.id, event.runId)

    def onQueryProgress(self, event: Any) -> None:
        report = json.loads(event.progress.json)
        with self._lock:
            progress = QueryProgress.of(report, self._queries.get(report["id"]))
            self._queries[progress.query_id] = progress
        _log.info("%s", progress)

    def onQueryIdle(self, event: Any) -> None:
        """Does nothing: an idle query has no new progress."""

    def onQueryTerminated(self, event: Any) -> None:
        with self._lock:
            ended = self._queries.pop(str(event.id), None)
        name = event.id if ended is None else ended.name
        if event.exception:
            _log.error("query %s has failed: %s", name, event.exception)
        else:
            _log.info("query %s has ended", name)

    # --- metrics ----------------------------------------------------------------------------------------------------

    def queries(self) -> list[QueryProgress]:
        """Returns the running queries, each as of its last report."""
        with self._lock:
            return list(self._queries.values())

    def text(self) -> str:
        """Returns the metrics in Prometheus' text format."""
        return prometheus_text(self.queries())

    @property
    def port(self) -> int | None:
        """The port of the HTTP server, None without one."""
        return None if self._server is None else int(self._server.server_address[1])

    def _serve(self, host: str, port: int) -> None:
        listener = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = self.path.partition("?")[0] in ("/", "/metrics")
                body = listener.text().encode() if found else b"see /metrics\n"
                self.send_response(200 if found else 404)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                _log.debug(format, *args)

        self._server = ThreadingHTTPServer((host, port), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="barnabas-query-metrics", daemon=True).start()

    def close(self) -> None:
        """Stops the HTTP server."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()
