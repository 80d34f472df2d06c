"""An output directory on an object store: what the code does through Arrow's S3 file system, against moto's server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from eventlog.errors import ConfigError
from spark.output.directory import SUCCESS, Claim, Directory, begin, finish, job_in, resume
from spark.output.part_files import PartFiles
from spark.stages import shuffle

moto_server = pytest.importorskip("moto.server", reason="moto[server] is not installed")
boto3 = pytest.importorskip("boto3", reason="boto3 is not installed")

CLAIM = Claim("backlog job", {"log": "hr.eventlog"}, lambda said: f"documents of {said['log']}")


@pytest.fixture(scope="module")
def store() -> Iterator[Any]:
    server = moto_server.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    keys = {"aws_access_key_id": "AKIA", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
    client = boto3.client("s3", endpoint_url=f"http://{host}:{port}", **keys)
    client.create_bucket(Bucket="landing")
    client.uri = f"s3://AKIA:secret@landing/%s?scheme=http&endpoint_override={host}:{port}&region=us-east-1"
    yield client
    server.stop()


def keys_of(store: Any, prefix: str) -> set[str]:
    found = store.list_objects_v2(Bucket="landing", Prefix=prefix).get("Contents", ())
    return {each["Key"].removeprefix(f"{prefix}/") for each in found}


def test_a_file_is_written_once_under_its_own_name(store: Any) -> None:
    directory = Directory(store.uri % "once")
    begin(directory, CLAIM, (), "job1")
    with PartFiles(directory, "part-000001-{:05d}-job1.xmll".format, 2**20, "none") as files:
        files.add([b"<a/>\n"], 1, 1, 7, 7)
        files.close()
        assert "part-000001-00001-job1.xmll" in keys_of(store, "once")
    (file,) = files.files
    assert directory.sha256(file.name) == file.sha256
    assert job_in(directory) == "job1"


def test_a_job_of_which_only_a_part_was_written_is_begun_anew_and_a_finished_one_is_resumed(store: Any) -> None:
    directory = Directory(store.uri % "killed")
    begin(directory, CLAIM, (), "job1")
    shuffle.write_run(directory, 1, [shuffle.Blob(shuffle.EVENTS, 1, 7, b"content")])  # and killed

    directory = Directory(store.uri % "killed")
    assert resume(directory, CLAIM) is None
    begin(directory, CLAIM, (), "job2")
    run = shuffle.write_run(directory, 1, [shuffle.Blob(shuffle.EVENTS, 1, 7, b"content")])
    assert [blob.content for blob in shuffle.read_run(directory, run)] == [b"content"]
    directory.write("_ids/part-000001-job2.parquet", b"ids")
    told: list[str] = []
    finish(directory, CLAIM, {"job": "job2"}, {"_ids/part-000001-job2.parquet": 3}, told.append)
    assert told == [directory.sha256("_manifest.json")]
    known = resume(Directory(store.uri % "killed"), CLAIM)
    assert known is not None
    assert known["job"] == "job2"
    assert not [key for key in keys_of(store, "killed") if key.startswith("_temporary") and not key.endswith("/")]
    assert {SUCCESS, "_manifest.json", "_ids/part-000001-job2.parquet"} <= keys_of(store, "killed")


def test_keys_in_the_uri_are_in_no_message_and_no_file(store: Any) -> None:
    directory = Directory(store.uri % "masked")
    assert "secret" not in directory.location
    begin(directory, CLAIM, (), "job1")
    directory.write("_manifest.json", json.dumps({"log": "fin.eventlog"}).encode())
    directory.write(SUCCESS, b"")
    with pytest.raises(ConfigError) as refused:
        resume(directory, CLAIM)
    assert "secret" not in str(refused.value)
