"""A schema registry in this process, and Avro values as they are written with its schemas."""

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from typing import Any

OLD = {"type": "record", "name": "P", "fields": [{"name": "a", "type": "int"}]}
NEW = {"type": "record", "name": "P", "fields": [*OLD["fields"], {"name": "b", "type": "string", "default": "-"}]}
OTHER = {"type": "record", "name": "P", "fields": [{"name": "a", "type": "string"}]}
COLOR = {"type": "enum", "name": "shop.Color", "symbols": ["RED", "BLUE"]}
ITEM = {
    "type": "record",
    "name": "Item",
    "namespace": "shop",
    "fields": [{"name": "color", "type": "Color"}, {"name": "also", "type": {"type": "array", "items": "Item"}}],
}
NESTED = {
    "type": "record",
    "name": "Order",
    "namespace": "shop.orders",
    "fields": [
        {"name": "items", "type": {"type": "array", "items": "shop.Item"}},
        {"name": "color", "type": ["null", "shop.Color"]},
        {"name": "first", "type": "shop.Item"},
    ],
}


def written(schema: Any, value: Any) -> bytes:
    import fastavro

    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def refers(schema: Any, *places: tuple[str, int]) -> dict[str, Any]:
    references = [{"name": "any", "subject": subject, "version": version} for subject, version in places]
    return {"schema": json.dumps(schema), "references": references}


REFERRING = {
    "/schemas/ids/10": refers(NESTED, ("item", 3), ("color", 1)),
    "/schemas/ids/11": refers(NESTED, ("item", 4)),
    "/schemas/ids/12": refers(NESTED, ("broken", 1)),
    "/subjects/item/versions/3?deleted=true": refers(ITEM, ("color", 1), ("item", 3)),
    "/subjects/color/versions/1?deleted=true": {"schema": json.dumps(COLOR)},
    "/subjects/broken/versions/1?deleted=true": {"schema": '{"type": "record"}'},
}


class FakeRegistry:
    """Answers as Confluent's does; counts what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.password: str | None = None
        self.elsewhere = ""
        """The address that all requests are redirected to, if there is one."""
        self.authorizations: list[str | None] = []
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                fake.asked.append(self.path)
                fake.authorizations.append(self.headers.get("Authorization"))
                if fake.elsewhere and not self.path.startswith("/moved"):
                    self.send_response(302)
                    self.send_header("Location", fake.elsewhere + self.path)
                    self.end_headers()
                    return
                status, body = fake.answer(self.path.removeprefix("/moved"), self.headers.get("Authorization"))
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def answer(self, path: str, authorization: str | None) -> tuple[int, Any]:
        if self.password and authorization != "Basic " + base64.b64encode(self.password.encode()).decode():
            return 401, {}
        schemas = {"/schemas/ids/1": OLD, "/schemas/ids/2": NEW, "/schemas/ids/3": OTHER}
        schemas["/subjects/orders-value/versions/latest"] = NEW
        if path in REFERRING:
            return 200, REFERRING[path]
        if path == "/schemas/ids/4":
            return 200, {"schema": "{}", "schemaType": "JSON"}
        if path == "/schemas/ids/5":
            return 500, {}
        return (200, {"schema": json.dumps(schemas[path])}) if path in schemas else (404, {"error_code": 40403})


def framed(schema_id: int, schema: Any, value: Any) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + written(schema, value)
