"""Event log, XDS and JSON lines and back: what they can hold comes back equal (spec/change-model.md
5, 5.1).
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shared import examples

from eventlog.changes.format import Report
from eventlog.conversion import convert
from eventlog.model import Change, ChangeOp, Value
from eventlog.registry import format_named

CATALOG = {
    "dialect": "postgresql",
    "schema": "app",
    "tables": [
        {
            "name": "thing",
            "kind": "table",
            "columns": [
                {"name": name, "type": type}
                for name, type in {
                    "no": "bigint",
                    "code": "varchar(9)",
                    "small": "smallint",
                    "exact": "decimal(20,4)",
                    "approximate": "double",
                    "flag": "boolean",
                    "fixed": "char(9)",
                    "words": "varchar(99)",
                    "bytes": "varbinary(99)",
                    "day": "date",
                    "at": "time",
                    "moment": "timestamp",
                    "instant": "timestamptz",
                }.items()
            ],
            "primary_key": ["no", "code"],
        },
        {
            "name": "note",
            "kind": "table",
            "columns": [
                {"name": name, "type": type}
                for name, type in {
                    "no": "bigint",
                    "code": "varchar(9)",
                    "text": "varchar(9)",
                }.items()
            ],
            "foreign_keys": [
                {"columns": ["no", "code"], "table": "thing", "ref_columns": ["no", "code"]}
            ],
        },
    ],
}
NOTES = "note.text"

# What XML can hold: no control characters, and neither of the two that are none.
_XML: dict[str, Any] = {
    "codec": "utf-8",
    "exclude_categories": ["Cc"],
    "exclude_characters": "\ufffe\uffff",
}
TEXT = st.text(st.characters(**_XML, include_characters="\t\r\n"), max_size=8)
KEY_TEXT = st.text(st.characters(**_XML, include_characters="\t"), max_size=6)
WHOLE = datetime.max.replace(microsecond=0)


def columns(fraction: bool) -> dict[str, st.SearchStrategy[Value]]:
    """Values by column; times with a fraction of a second only where the format keeps it."""
    moments = st.datetimes()
    times = st.times()
    if not fraction:
        moments = moments.map(lambda moment: moment.replace(microsecond=0))
        times = times.map(lambda time: time.replace(microsecond=0))
    return {
        "small": st.integers(-(2**15), 2**15 - 1),
        "exact": st.decimals(-(10**12), 10**12, places=4),
        "approximate": st.floats(allow_nan=False),
        "flag": st.booleans(),
        "fixed": TEXT.map(lambda text: text.rstrip(" ")),
        "words": TEXT,
        "bytes": st.binary(max_size=8),
        "day": st.dates(),
        "at": times,
        "moment": moments,
        "instant": moments.map(lambda moment: moment.replace(tzinfo=UTC)),
        NOTES: st.lists(TEXT, min_size=1, max_size=3, unique=True).map(tuple),
    }


@st.composite
def change(
    draw: st.DrawFn, number: int, of: dict[str, Any], times: st.SearchStrategy[Any], users: Any
) -> Change:
    """A change as rows or documents can hold it; ``number`` makes its object another than that of
    the others.
    """
    key = (("no", number), ("code", draw(KEY_TEXT)))
    own = {
        "schema": "app",
        "table": "thing",
        "key": key,
        "position": str(number),
        "commit_time": draw(times),
        "user": draw(users),
    }
    op = draw(st.sampled_from([ChangeOp.INSERT, ChangeOp.UPDATE, ChangeOp.DELETE]))
    if op is ChangeOp.DELETE:
        return Change(op=op, before=dict(key), **own)
    names = draw(st.lists(st.sampled_from(sorted(of)), min_size=1, unique=True))
    after = {name: draw(of[name]) for name in names}
    if op is ChangeOp.INSERT:
        return Change(op=op, after={**dict(key), **after}, **own)
    before: dict[str, Value] = {}
    for name in names:
        match draw(st.sampled_from(["unknown", "null", "known", "to null"])):
            case "null":
                before[name] = () if name == NOTES else None
            case "known":
                before[name] = (
                    without(draw(of[name]), after[name]) if name == NOTES else draw(of[name])
                )
            case "to null":
                before[name] = draw(of[name])
                after[name] = () if name == NOTES else None
    return Change(
        op=op,
        before={**dict(key), **before} if before else None,
        after={**dict(key), **after},
        changed=frozenset(names),
        **own,
    )


def without(values: Any, others: Any) -> Value:
    """What was removed is not what was added."""
    return tuple(value for value in values if value not in others)


def changes(
    fraction: bool, times: st.SearchStrategy[Any], users: Any
) -> st.SearchStrategy[list[Change]]:
    of = columns(fraction)
    return st.integers(0, 3).flatmap(
        lambda size: st.tuples(
            *[change(number, of, times, users) for number in range(1, size + 1)]
        ).map(list)
    )


COMMIT_TIMES = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)).map(
    lambda moment: moment.replace(tzinfo=UTC)
)
LOG_CHANGES = changes(True, COMMIT_TIMES, TEXT | st.none())
XDS_CHANGES = changes(False, st.none(), st.none())


def through(
    format: str, given_changes: Sequence[Change], directory: Path, suffix: str, **options: Any
) -> list[Change]:
    """Changes written in a format and read again."""
    target = str(directory / f"file{suffix}")
    named = format_named(format)
    own = {"catalog": CATALOG, **options}
    report = Report(strict=True)
    named.write(iter(given_changes), target, own, report)
    assert report.written == len(given_changes)
    return list(named.read(target, own, report))


def without_fields(given_changes: Sequence[Change], **fields: Any) -> list[Change]:
    return [one._replace(**fields) for one in given_changes]


@pytest.mark.promise("format eventlog")
@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_log_rows_keep_a_change(suffix: str) -> None:
    @settings(max_examples=examples(60), deadline=None)
    @given(LOG_CHANGES)
    def keep(native: list[Change]) -> None:
        with tempfile.TemporaryDirectory() as directory:
            back = through("eventlog", native, Path(directory), suffix)
            assert without_fields(back, position=None) == without_fields(native, position=None)

    keep()


@settings(max_examples=examples(100), deadline=None)
@given(XDS_CHANGES)
def test_documents_keep_a_change(native: list[Change]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        assert through("xds", native, Path(directory), ".xmll") == native


@pytest.mark.parametrize("time_syntax", ["canonical", "java"])
def test_documents_with_times_as_text_keep_all_but_the_fraction_of_a_time_of_day(
    time_syntax: str,
) -> None:
    @settings(max_examples=examples(40), deadline=None)
    @given(XDS_CHANGES)
    def keep(native: list[Change]) -> None:
        with tempfile.TemporaryDirectory() as directory:
            assert (
                through("xds", native, Path(directory), ".xmll", time_syntax=time_syntax) == native
            )

    keep()


@pytest.mark.promise("format jsonl")
@settings(max_examples=examples(60), deadline=None)
@given(LOG_CHANGES)
def test_json_lines_keep_a_change_and_its_types_by_the_catalogue(native: list[Change]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        assert through("jsonl", native, Path(directory), ".jsonl") == native


@pytest.mark.parametrize("mode", ["structured", "batched"])
def test_cloudevents_keep_a_change_and_its_types_by_the_catalogue(mode: str) -> None:
    @settings(max_examples=examples(60), deadline=None)
    @given(LOG_CHANGES)
    def keep(native: list[Change]) -> None:
        with tempfile.TemporaryDirectory() as directory:
            named = format_named("cloudevents")
            target, report = str(Path(directory) / "events.json"), Report(strict=True)
            named.write(
                iter(native), target, {"catalog": CATALOG, "mode": mode, "batch_size": 2}, report
            )
            assert report.written == len(native)
            assert list(named.read(target, {"catalog": CATALOG}, report)) == native

    keep()


@settings(max_examples=examples(60), deadline=None)
@given(XDS_CHANGES)
def test_documents_through_the_log_lose_their_position_only(native: list[Change]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory)
        format_named("xds").write(
            native, str(path / "in.xmll"), {"catalog": CATALOG}, Report(strict=True)
        )
        convert(
            "xds",
            "eventlog",
            str(path / "in.xmll"),
            str(path / "log.csv"),
            {"catalog": CATALOG},
            strict=True,
        )
        back = list(
            format_named("eventlog").read(
                str(path / "log.csv"), {"catalog": CATALOG}, Report(strict=True)
            )
        )
    assert without_fields(back, position=None, commit_time=None) == without_fields(
        native, position=None
    )


@settings(max_examples=examples(60), deadline=None)
@given(changes(False, COMMIT_TIMES, TEXT))
def test_the_log_through_documents_loses_time_and_user_only(native: list[Change]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory)
        format_named("eventlog").write(
            native, str(path / "log.jsonl"), {"catalog": CATALOG}, Report(strict=True)
        )
        convert(
            "eventlog",
            "xds",
            str(path / "log.jsonl"),
            str(path / "out.xmll"),
            {"catalog": CATALOG},
            strict=True,
        )
        back = list(
            format_named("xds").read(
                str(path / "out.xmll"), {"catalog": CATALOG}, Report(strict=True)
            )
        )
    assert without_fields(back, position=None) == without_fields(
        native, position=None, commit_time=None, user=None
    )
