"""The schema that ``eventlog schema`` prints holds for the events that are sent
(formats/cloudevents.md 6).
"""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from jsonschema import Draft202012Validator, ValidationError
from publishers import install, write_config
from shared import Run, execute, met, url_of

from eventlog.config.load import load
from eventlog.publisher.context.context import Counters
from eventlog.publisher.declared.configured_sink import open_sink
from eventlog.publisher.declared.opening import open_context
from eventlog.publisher.run.daemon import publish_once

TABLES = (
    "CREATE TABLE usr (id bigint PRIMARY KEY, n integer, big numeric(30), paid numeric(9,2), "
    "ratio double precision, ok boolean, photo bytea, made timestamptz, day date, doc jsonb, tags "
    "text[], grid integer[], note text)",
    "CREATE TABLE usr_phone (id bigint REFERENCES usr, phoneno text, PRIMARY KEY (id, phoneno))",
)
CHANGES = (
    "INSERT INTO usr VALUES (9007199254740993, 1, 123456789012345678901234567890, 1.50, 'NaN', "
    "true, '\\xbb', '2024-05-10 12:00+02', 'infinity', '{\"a\": [1, 1.10]}', '{a,\"b c\",NULL}', "
    "'{{1,2},{3,4}}', E'bell \\x07')",
    "INSERT INTO usr VALUES (7)",
    "INSERT INTO usr_phone VALUES (7, '1'), (7, '2')",
    "UPDATE usr SET n = 2, doc = '[]', tags = NULL, big = 7 WHERE id > 7",
    "DELETE FROM usr_phone WHERE phoneno = '1'",
    "DELETE FROM usr WHERE id > 7",
)


@pytest.fixture
def database(logged: sa.Engine) -> sa.Engine:
    return logged


@pytest.mark.parametrize(
    ("row_style", "options"),
    met(["field", "row_query_back"], [{}, {"integers": "text", "nested_values": "text"}]),
)
def test_every_event_follows_the_schema_of_its_class(
    run: Run, database: sa.Engine, tmp_path: Path, row_style: str, options: dict[str, Any]
) -> None:
    execute(database, *TABLES)
    sent, place = tmp_path / "sent", "https://hr.example.com/{class}.json"
    path = write_config(
        tmp_path, url_of(database), [{"table": "usr", "row_style": row_style}],
        publisher={"allow_loopback": True}, sink={"type": "files", "directory": str(sent),
        "file_layout": "lines"}, format={"type": "cloudevents", "cloudevents": {"dataschema": place,
        **options}},
    )  # fmt: skip
    config = load(path, {})
    install(config)
    execute(database, *CHANGES)
    with open_context(config, Counters()) as context, closing(open_sink(config, None)) as sink:  # type: ignore[arg-type]
        publish_once(context, sink)
    events = [
        json.loads(line)
        for file in sorted(sent.glob("*.jsonl"))
        for line in file.read_text().splitlines()
    ]
    assert len(events) >= 3  # read back: an insert, a modify, and the delete of what is gone
    code, out, err = run("--config", str(path), "schema", "usr")
    assert (code, err) == (0, "")
    schema = json.loads(out)
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)
    for event in events:
        assert event["dataschema"] == schema["$id"] == "https://hr.example.com/usr.json"
        validator.validate(event["data"])
    wrong = {**events[0]["data"], "key": {"id": None}}
    with pytest.raises(ValidationError):
        validator.validate(wrong)
    code, _, err = run("--config", str(path), "schema", "nobody")
    assert (code, "there is no class 'nobody'; the classes are: usr" in err) == (2, True)
