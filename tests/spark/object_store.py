"""A bucket on moto's S3 server, which counts the bytes that are put: for tests of jobs that write
there.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

moto_server = pytest.importorskip("moto.server", reason="moto[server] is not installed")
boto3 = pytest.importorskip("boto3", reason="boto3 is not installed")

BUCKET = "landing"
KEYS = {
    "AWS_ACCESS_KEY_ID": "AKIA",
    "AWS_SECRET_ACCESS_KEY": "se/cret",
    "AWS_DEFAULT_REGION": "us-east-1",
}
_JOB = re.compile(r"-[0-9a-f]{12}(?=\.)")


class Store:
    """``environment``: variables of a user of the store; ``put``: bytes by key; ``copies``: keys
    that were copied.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.environment = {**KEYS, "AWS_ENDPOINT_URL": f"http://{address}"}
        self.put: Counter[str] = Counter()
        self.copies: list[str] = []
        keys = {
            "aws_access_key_id": "AKIA",
            "aws_secret_access_key": "se/cret",
            "region_name": "us-east-1",
        }
        self.client = boto3.client("s3", endpoint_url=f"http://{address}", **keys)

    def uri(self, prefix: str) -> str:
        """A directory of the bucket with all that opens it, for jobs whose processes do not know
        the environment.
        """
        return f"s3://AKIA:se%2Fcret@{BUCKET}/{prefix}?scheme=http&endpoint_override={self.address}&region=us-east-1"

    def keys(self, prefix: str) -> set[str]:
        """The names of the objects in a directory."""
        pages = self.client.get_paginator("list_objects_v2").paginate(
            Bucket=BUCKET, Prefix=f"{prefix}/"
        )
        return {
            each["Key"].removeprefix(f"{prefix}/")
            for page in pages
            for each in page.get("Contents", ())
        }

    def read(self, prefix: str, name: str) -> bytes:
        return bytes(self.client.get_object(Bucket=BUCKET, Key=f"{prefix}/{name}")["Body"].read())

    def output(self, prefix: str) -> dict[str, bytes]:
        """The files of documents and of what was read, by their names without the job's."""
        return {
            _JOB.sub("", name): self.read(prefix, name)
            for name in self.keys(prefix)
            if is_output(name)
        }

    def counted(self, app: Callable[..., Iterable[bytes]]) -> Callable[..., Iterable[bytes]]:
        """The server's application, each request of which is counted first."""

        def run(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            if environ["REQUEST_METHOD"] == "PUT":
                key = environ["PATH_INFO"].removeprefix(f"/{BUCKET}/")
                length = (
                    environ.get("HTTP_X_AMZ_DECODED_CONTENT_LENGTH")
                    or environ.get("CONTENT_LENGTH")
                    or 0
                )
                self.put[key] += int(length)
                if "HTTP_X_AMZ_COPY_SOURCE" in environ:
                    self.copies.append(key)
            return app(environ, start_response)

        return run


def is_output(name: str) -> bool:
    return name.startswith(("part-", "_ids/"))


def output_of(directory: Path) -> dict[str, bytes]:
    """The same of a directory on this machine."""
    names = {
        path.relative_to(directory).as_posix(): path
        for path in directory.rglob("*")
        if path.is_file()
    }
    return {
        _JOB.sub("", name): path.read_bytes() for name, path in names.items() if is_output(name)
    }


@contextmanager
def object_store() -> Iterator[Store]:
    """A store with one bucket, on loopback, until the end of the block."""
    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # it logs each request
    server = moto_server.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        store = Store(f"{host}:{port}")
        server._server.app = store.counted(server._server.app)
        store.client.create_bucket(Bucket=BUCKET)
        yield store
    finally:
        server.stop()
