"""A bucket on moto's S3 server, and the settings of a sink that puts objects there."""

from __future__ import annotations

import logging
from contextlib import suppress
from socket import create_connection
from threading import Thread
from typing import Any, Final
from urllib.request import Request, urlopen

import pytest

from eventlog.config.load import Config, load

moto_server = pytest.importorskip("moto.server", reason="moto[server] is not installed")
boto3 = pytest.importorskip("boto3", reason="boto3 is not installed")
serving = pytest.importorskip("werkzeug.serving", reason="moto[server] is not installed")

BUCKET: Final = "landing"
ACCESS_KEY, SECRET_KEY = "AKIAEVENTLOG", "s3cr/et+key"
KEYS: Final = {"EVENTLOG_SINK_ACCESS_KEY": ACCESS_KEY, "EVENTLOG_SINK_SECRET_KEY": SECRET_KEY}


class Store:
    def __init__(self) -> None:
        logging.getLogger("werkzeug").setLevel(logging.WARNING)  # it reports each request
        # As ThreadedMotoServer does, which takes half a second to stop: it looks seldom whether it is
        # to. A server that looks often is slow on a machine with work.
        app = moto_server.DomainDispatcherApplication(moto_server.create_backend_app)
        handler = moto_server.MotoRequestHandler
        self._server = serving.make_server(
            "127.0.0.1", 0, app, threaded=True, request_handler=handler
        )
        self._thread = Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self.client = boto3.client(
            "s3", endpoint_url=self.url, region_name="us-east-1", aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
        )  # fmt: skip
        self.client.create_bucket(Bucket=BUCKET)

    def sink(self, **options: Any) -> dict[str, Any]:
        return {
            "type": "objects", "bucket_url": f"s3://{BUCKET}/hr", "endpoint": self.url,
            "region": "us-east-1", "timeout": 2, **options,
        }  # fmt: skip

    def config(self, **options: Any) -> Config:
        return load({"sink": self.sink(**options)}, KEYS)

    def names(self) -> list[str]:
        found = self.client.list_objects_v2(Bucket=BUCKET).get("Contents", ())
        return sorted(one["Key"].removeprefix("hr/") for one in found)

    def read(self, name: str) -> bytes:
        return bytes(self.client.get_object(Bucket=BUCKET, Key=f"hr/{name}")["Body"].read())

    def close(self) -> None:
        stopping = Thread(target=self._server.shutdown)
        stopping.start()
        with suppress(OSError):  # a connection lets it look
            create_connection(self._server.server_address).close()
        stopping.join()
        self._thread.join()

    def count_keys_after(self, requests: int) -> None:
        """From then on the server knows no key: none has been made there."""
        plain = {"Content-Type": "text/plain"}
        urlopen(
            Request(f"{self.url}/moto-api/reset-auth", str(requests).encode(), plain, method="POST")
        ).close()

    def clear(self) -> None:
        """Delete what is there: all servers of a process have one store."""
        for one in self.client.list_objects_v2(Bucket=BUCKET).get("Contents", ()):
            self.client.delete_object(Bucket=BUCKET, Key=one["Key"])
