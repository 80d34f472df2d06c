"""The format ``qlik-messages`` of the converter: files, whole or not at all, and their lines
(message_format).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from message_samples import BEFORE, COLUMNS, DATA, HEADERS, SEQUENCE, UPDATE, envelope

from eventlog.changes.format import Report
from eventlog.errors import ConfigError, FormatError
from eventlog.model import Change, KafkaRecord
from eventlog.qlik.messages.envelope import UnknownSchema
from eventlog.qlik.messages.message_files import line_of, read_lines
from eventlog.qlik.messages.message_format import FORMAT
from eventlog.qlik.sequence import check, first_sequence, sequence_at


def written(path: Path, changes: list[Change], **options: Any) -> list[dict[str, Any]]:
    report = Report()
    FORMAT.write(changes, str(path), options, report)
    assert report.written == len(changes)
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def found(path: Path, report: Report | None = None, **options: Any) -> list[Change]:
    return list(FORMAT.read(str(path), options, Report(strict=True) if report is None else report))


@pytest.mark.promise("format qlik-messages")
@pytest.mark.parametrize("encoding", ["json", "avro"])
def test_a_file_holds_records_and_gives_the_changes_back(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "m.jsonl"
    metadata, data = written(path, [UPDATE], encoding=encoding, columns=COLUMNS)
    assert (metadata["topic"], data["topic"]) == ("eventlog.metadata", "app.item")
    assert data["key"] == "7" if encoding == "json" else data["key"] == "\x02\x0e"
    assert ("hex" in data["value"]) == (encoding == "avro")
    report = Report()
    assert found(path, report) == [UPDATE]
    assert report.read == 1


def test_bare_messages_and_empty_lines_are_read(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    record = envelope({"data": DATA, "beforeData": BEFORE, "headers": HEADERS})
    bare = {"data": DATA, "beforeData": BEFORE, "headers": HEADERS}
    path.write_text(
        f"{json.dumps(record)}\n\n{json.dumps(bare)}\nnull\n"
        + json.dumps({"topic": "x", "value": None}),
        encoding="utf-8",
    )
    report = Report()
    assert found(path, report, schema="app", table="item", columns=COLUMNS) == [UPDATE, UPDATE]
    assert (report.read, report.counters) == (2, {"tombstones": 2})


def test_a_message_may_come_before_its_metadata(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    written(path, [UPDATE], columns=COLUMNS)
    metadata, data = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(data + metadata)
    assert found(path) == [UPDATE]
    path.write_bytes(data)
    with pytest.raises(UnknownSchema):
        found(path)


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text("as it was", encoding="utf-8")

    def broken() -> Iterator[Change]:
        yield UPDATE
        raise FormatError("broken")

    with pytest.raises(FormatError, match="broken"):
        FORMAT.write(broken(), str(path), {}, Report())
    assert [one.name for one in tmp_path.iterdir()] == ["m.jsonl"]
    assert path.read_text(encoding="utf-8") == "as it was"
    with pytest.raises(ConfigError, match="cannot be written"):
        FORMAT.write([], str(tmp_path / "none" / "m"), {}, Report())


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "line 1: not JSON"),
        ('{"value":{"hex":"0"}}', "line 1: .* is neither text nor hex"),
        ('{"key":7,"value":null}', "line 1: 7 is neither text nor hex"),
        ('{"topic":7,"value":null}', "line 1: topic must be text"),
        ("7", "a message must be a JSON object"),
    ],
)
def test_lines_that_are_no_records_are_named(tmp_path: Path, line: str, why: str) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text(line, encoding="utf-8")
    with pytest.raises(FormatError, match=why):
        found(path)


@pytest.mark.parametrize(
    ("value", "filter"), [({"a": {"b": 1}}, "-c ."), ([{"a": {"b": 1}}], "-c '.[]'")]
)
def test_a_file_that_is_printed_for_people_gets_one_hint(
    tmp_path: Path, value: Any, filter: str
) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps(value, indent=2), encoding="utf-8")
    good = json.dumps(envelope({"data": DATA, "beforeData": BEFORE, "headers": HEADERS}))
    (tmp_path / "b.jsonl").write_text(good, encoding="utf-8")
    report = Report()
    assert found(tmp_path, report, schema="app", table="item", columns=COLUMNS) == [UPDATE]
    assert report.counters == {"invalid_format": 1}
    assert "a.jsonl, line 1" in report.problems[0]
    assert f"jq {filter}" in report.problems[0]


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="cannot be read"):
        found(tmp_path / "none")


@pytest.mark.promise("code error-bad_sequence")
def test_what_cannot_be_read_is_passed_over_and_what_stands_after_it_is_read(
    tmp_path: Path,
) -> None:
    path = tmp_path / "m.jsonl"
    good = json.dumps(envelope({"data": DATA, "beforeData": BEFORE, "headers": HEADERS}))
    bad = json.dumps(envelope({"data": DATA, "headers": {**HEADERS, "changeSequence": "7"}}))
    value = envelope({"data": DATA, "headers": HEADERS}, messageSchemaId="AB" * 16)
    waiting = json.dumps({"topic": "app.other", "value": value})
    path.write_text(
        "\n".join([good, "{", "7", bad, good, waiting, good, waiting, good]), encoding="utf-8"
    )
    report = Report()
    assert found(path, report, schema="app", table="item", columns=COLUMNS) == [UPDATE] * 4
    assert (report.read, report.counters) == (
        4, {"invalid_format": 1, "bad_envelope": 1, "bad_sequence": 1, "unknown_schema": 2},
    )  # fmt: skip
    assert "line 2: not JSON" in report.problems[0]


def test_what_cannot_be_written_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    report = Report()
    several = UPDATE._replace(after={**(UPDATE.after or {}), "tag": ("red", "big")})
    FORMAT.write([UPDATE, several, UPDATE], str(path), {"columns": COLUMNS}, report)
    assert (report.written, report.counters) == (2, {"not_expressible": 1})
    assert found(path) == [UPDATE, UPDATE]
    with pytest.raises(FormatError, match="several values"):
        FORMAT.write([several], str(path), {"columns": COLUMNS}, Report(strict=True))


def test_the_files_of_a_directory_continue_one_another(tmp_path: Path) -> None:
    written(tmp_path / "m.jsonl", [UPDATE], columns=COLUMNS)
    metadata, data = (tmp_path / "m.jsonl").read_text(encoding="utf-8").splitlines()
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "2.jsonl").write_text(data, encoding="utf-8")
    (tmp_path / "d" / "1.jsonl").write_text(metadata, encoding="utf-8")
    assert found(tmp_path / "d") == [UPDATE]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"colums": {}}, "nearest known one is columns"),
        ({"metadata": "registry", "encoding": "avro"}, "needs the option registry"),
    ],
)
def test_options_that_are_not_known_or_do_not_go_together(
    tmp_path: Path, options: dict[str, Any], why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        FORMAT.write([UPDATE], str(tmp_path / "m"), options, Report())


@given(st.text(), st.none() | st.binary(), st.binary().filter(lambda value: value[:1] != b"{"))
def test_records_come_back_from_their_lines(topic: str, key: bytes | None, value: bytes) -> None:
    import tempfile

    with tempfile.NamedTemporaryFile() as file:
        file.write(line_of(KafkaRecord(topic, key, value)))
        file.flush()
        (message,) = read_lines(Path(file.name), Report(strict=True).skip)
    assert (message.topic, message.key, message.value) == (topic, key, value)


# Rows of change tables get counters (formats/qlik.md 7).


def test_changes_of_a_change_table_get_event_counters(tmp_path: Path) -> None:
    def change(number: int, transaction: str | None, **more: Any) -> Change:
        sequence = f"{SEQUENCE[:-2]}{number:02}"
        return UPDATE._replace(
            position=sequence, transaction_id=transaction, event_number=None,
            last_in_transaction=None, extras={"change_seq": sequence}, **more,
        )  # fmt: skip

    def counters(**options: Any) -> list[tuple[int | None, bool | None]]:
        changes = [change(1, "A" * 32), change(2, "A" * 32), change(3, None), change(4, "B" * 32)]
        path = tmp_path / "m.jsonl"
        headers = [record["value"]["message"]["headers"]
                   for record in written(path, changes, columns=COLUMNS, metadata="none",
                   **options)]  # fmt: skip
        return [(one["transactionEventCounter"], one["transactionLastEvent"]) for one in headers]

    assert counters() == [(1, False), (2, True), (None, None), (1, True)]
    assert counters(input_complete=False)[-1] == (1, None)


# Numbers of deliveries.


@given(st.integers(0, 10**8), st.integers(1, 10**6), st.integers(0, 10**4))
def test_deliveries_are_numbered_upwards_regardless_of_the_clock(
    delivery_no: int, places: int, back: int
) -> None:
    from datetime import UTC, datetime, timedelta

    now = datetime(2024, 5, 10, 12, tzinfo=UTC)
    first = first_sequence(delivery_no, "", now)
    last = check(sequence_at(first, places))
    after = first_sequence(delivery_no + 1, first, now - timedelta(seconds=back))
    assert check(first) == sequence_at(first, 1)
    assert first <= last < after
