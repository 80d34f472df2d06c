"""Whatever comes, readers give changes or pass it over, and go on, in time: damaged bytes, values
of other types.
"""

from __future__ import annotations

import contextlib
import json
import tomllib
from pathlib import Path
from random import Random
from typing import Any

import pytest
from fuzzing import CASES, ODD, OF_A_FILE, changed, damaged, dumped, lines_of, read, replaced, run
from loss_formats import CATALOG, TRIED
from loss_samples import SAMPLES

from eventlog.changes.json_form import database_of
from eventlog.config.load import load
from eventlog.config.settings import SECTIONS
from eventlog.conversion import convert, read_map
from eventlog.core.catalog.builder import build_catalog, complete_catalog
from eventlog.core.options import options_of, toml
from eventlog.errors import EventlogError
from eventlog.registry import format_named

OPTIONS: list[dict[str, Any]] = [{}, {"catalog": CATALOG}]


def lines(path: Path, format: str, name: str, **writer: Any) -> list[bytes]:
    """The lines of a good file of a format."""
    SAMPLES["E"](path / "log.jsonl")
    if format != "eventlog" or name != "log.jsonl":
        convert(
            "eventlog",
            format,
            str(path / "log.jsonl"),
            str(path / name),
            {"catalog": CATALOG, "writer": writer},
        )
    return (path / name).read_bytes().splitlines()


# --- exports of a log -----------------------------------------------------------------------------


@pytest.mark.parametrize("cases", CASES)
def test_no_row_of_a_json_export_stops_the_reader(tmp_path: Path, cases: int) -> None:
    good = lines(tmp_path, "eventlog", "log.jsonl")
    path, format = tmp_path / "in.jsonl", format_named("eventlog")
    rows = [json.loads(line) for line in good]

    def row(number: int) -> bytes:
        return json.dumps({**rows[number % len(rows)], "record_id": number}).encode()

    options = [
        *({**one, "sort": True} for one in OPTIONS),
        {},
        {"layout": "3.5", "sort": True, "fold_distance": 0},
    ]
    run(
        cases,
        path,
        lambda rnd: lines_of(rnd, row),
        lambda rnd: read(format, path, rnd.choice(options)),
    )


def csv_export(rnd: Random, good: list[bytes]) -> bytes:
    head, *rows = good
    lines = [head]
    for number in range(1, 2 * OF_A_FILE + 1):
        fields = [str(number).encode(), *rows[number % len(rows)].split(b",")[1:]]
        if number % 2 == 0:
            text = str(rnd.choice(ODD)).replace('"', '""').encode("utf-8", "surrogatepass")
            fields[rnd.randrange(len(fields))] = text if rnd.random() < 0.3 else b'"' + text + b'"'
        line = b",".join(fields)
        lines.append(damaged(rnd, line) if number % 2 == 0 and rnd.random() < 0.2 else line)
    return b"\n".join(lines)


@pytest.mark.parametrize("cases", CASES)
def test_no_row_of_a_csv_export_stops_the_reader(tmp_path: Path, cases: int) -> None:
    good = lines(tmp_path, "eventlog", "log.csv")
    path, format = tmp_path / "in.csv", format_named("eventlog")
    options = [{**one, "sort": True} for one in OPTIONS]
    run(
        cases,
        path,
        lambda rnd: csv_export(rnd, good),
        lambda rnd: read(format, path, rnd.choice(options)),
    )


# --- changes, documents ---------------------------------------------------------------------------


@pytest.mark.parametrize("cases", CASES)
def test_no_line_of_changes_stops_the_reader(tmp_path: Path, cases: int) -> None:
    good = lines(tmp_path, "jsonl", "changes.jsonl")
    path, format = tmp_path / "in.jsonl", format_named("jsonl")

    def line(number: int) -> bytes:
        return good[number % len(good)]

    run(
        cases,
        path,
        lambda rnd: lines_of(rnd, line),
        lambda rnd: read(format, path, rnd.choice(OPTIONS)),
        0.9,
    )


@pytest.mark.parametrize("cases", CASES)
def test_no_cloudevent_stops_the_reader(tmp_path: Path, cases: int) -> None:
    good = lines(tmp_path, "cloudevents", "events.jsonl")
    path, format = tmp_path / "in.jsonl", format_named("cloudevents")

    def line(number: int) -> bytes:
        one = good[number % len(good)]
        return b"[" + one + b"]" if number % 5 == 0 else one

    run(
        cases,
        path,
        lambda rnd: lines_of(rnd, line),
        lambda rnd: read(format, path, rnd.choice(OPTIONS)),
        0.9,
    )


def documents(rnd: Random, good: list[bytes]) -> bytes:
    bad = []
    for _ in range(OF_A_FILE):
        line = rnd.choice(good)
        parts = line.split(b"value>")
        at = rnd.randrange(len(parts))
        parts[at] = str(rnd.choice(ODD)).encode("utf-8", "surrogatepass") + b"</"
        bad.append(
            b"value>".join(parts) if rnd.random() < 0.3 else damaged(rnd, line).replace(b"\n", b" ")
        )
    return b"\n".join([*good, *bad, *good])


@pytest.mark.parametrize("cases", CASES)
def test_no_document_stops_the_reader(tmp_path: Path, cases: int) -> None:
    good = lines(tmp_path, "xds", "documents.xmll", batch_size=2)
    path, format = tmp_path / "in.xmll", format_named("xds")
    options = [
        *OPTIONS,
        {"catalog": CATALOG, "time_syntax": "java"},
        {"meta_identifiers": False, "limit": 400},
    ]
    run(
        cases,
        path,
        lambda rnd: documents(rnd, good),
        lambda rnd: read(format, path, rnd.choice(options)),
    )


# --- queues ---------------------------------------------------------------------------------------

QUEUE_OPTIONS: list[dict[str, Any]] = [
    {"codec": "eventlog-emulator-1", "on_row_error": "raw", "time_zone": "Europe/Berlin"},
    {"codec": "eventlog-emulator-1", "destinations": "all", "order_by": "row_id"},
    {"typ_table": "prose", "final": False, "blob_operations": "error"},
]


@pytest.mark.parametrize("cases", CASES)
@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
@pytest.mark.parametrize("which", ["dispatch_queue", "dispatch_attrs"])
def test_no_row_of_a_queue_gives_anything_but_a_clear_error(
    tmp_path: Path, cases: int, which: str, suffix: str
) -> None:
    SAMPLES["L"](tmp_path / TRIED["L"].target)
    options = {"codec": "eventlog-emulator-1", "time_zone": "UTC"}
    format = format_named("linter")
    export = tmp_path / "export"
    source = str(tmp_path / TRIED["L"].target)
    convert("linter", "linter", source, str(export), {"reader": {**TRIED["L"].reader}, "writer": {
        **TRIED["L"].writer, "files": suffix}})  # fmt: skip
    path = export / f"{which}.{suffix}"
    good = path.read_bytes()
    assert read(format, export, options) > 1

    def case(rnd: Random) -> bytes:
        lines = good.splitlines()
        at = rnd.randrange(len(lines))
        if rnd.random() < 0.4:
            return damaged(rnd, good)
        if suffix == "jsonl":
            lines[at] = replaced(rnd, lines[at])
        else:
            fields = lines[at].split(b",")
            fields[rnd.randrange(len(fields))] = str(rnd.choice(ODD)).encode(
                "utf-8", "surrogatepass"
            )
            lines[at] = b",".join(fields)
        return b"\n".join(lines)

    run(
        cases * OF_A_FILE,
        path,
        case,
        lambda rnd: read(format, export, rnd.choice(QUEUE_OPTIONS)),
        least=0,
    )


# --- catalogues, configuration --------------------------------------------------------------------


@pytest.mark.parametrize("cases", CASES)
def test_any_catalogue_is_read_or_refused(tmp_path: Path, cases: int) -> None:
    path = tmp_path / "catalog.json"

    def case(rnd: Random) -> bytes:
        good = json.dumps({"database": CATALOG} if rnd.random() < 0.2 else CATALOG).encode()
        return replaced(rnd, good) if rnd.random() < 0.8 else damaged(rnd, good)

    def reading(rnd: Random) -> int:
        with contextlib.suppress(EventlogError):
            database = database_of(str(path))
            assert database is not None
            complete_catalog(build_catalog(database, referential=rnd.choice(("value", "dn"))))
        return 0

    run(cases * OF_A_FILE, path, case, reading, least=0)


def settings() -> dict[str, dict[str, str]]:
    """A value for every option, as TOML has it: an example, or the default."""
    return {
        section: {
            name: toml(one.example or getattr(kind(), name) or "x")
            for name, one in options_of(kind).items()
            if not one.secret
        }
        for section, kind in SECTIONS.items()
    }


def toml_value(rnd: Random) -> str:
    odd = rnd.choice(ODD)
    text = toml(odd)
    with contextlib.suppress(ValueError):  # None, and an unpaired surrogate
        text.encode()
        return text if odd is not None and tomllib.loads(f"a = {text}") else "0"
    return rnd.choice(
        (
            "9" * 5000,
            "0x" + "F" * 5000,
            "[" * 3000 + "]" * 3000,
            "{a=" * 3000,
            "1e400",
            "-nan",
            "1979-05-27",
            "07:32:00",
            "1979-05-27T07:32:00Z",
            '"\\ud800"',
            "[[1], {a = 1}]",
            "{ a.b.c = 1 }",
            "'''\n'''",
            "{ " + ".".join("a" * 3000) + " = 1 }",
        )
    )


@pytest.mark.parametrize("cases", CASES)
def test_any_configuration_is_read_or_refused(tmp_path: Path, cases: int) -> None:
    path, known = tmp_path / "eventlog.toml", settings()
    watch = {
        "table": '"usr"',
        "row_style": '"field"',
        "columns": '["fname"]',
        "capture_replicated": "true",
        "exclude": '["x"]',
    }

    def case(rnd: Random) -> bytes:
        written = []
        for section in rnd.sample(sorted(known), 2):
            names = rnd.sample(sorted(known[section]), min(4, len(known[section])))
            values = [
                f"{name} = {known[section][name] if rnd.random() < 0.6 else toml_value(rnd)}"
                for name in names
            ]
            written += [f"[{section}]", *values]
        if rnd.random() < 0.5:
            values = [
                (f"{name} = {watch[name] if rnd.random() < 0.7 else toml_value(rnd)}")
                for name in rnd.sample(sorted(watch), 2)
            ]
            written += ["[[watch]]", *values]
        content = "\n".join(written).encode()
        return damaged(rnd, content) if rnd.random() < 0.3 else content

    def reading(rnd: Random) -> int:
        with contextlib.suppress(EventlogError):
            load(path, {})
        return 0

    run(cases * OF_A_FILE, path, case, reading, least=0)


@pytest.mark.parametrize("cases", CASES)
@pytest.mark.parametrize("name", ["map.toml", "map.json"])
def test_any_map_is_read_or_refused(tmp_path: Path, cases: int, name: str) -> None:
    path = tmp_path / name
    good = {
        "reader": {"keys": {"item": ["id"]}, "charset": "utf-8"},
        "writer": {"tables": {"item": "id int"}},
    }

    def case(rnd: Random) -> bytes:
        if name.endswith(".json"):
            value = changed(rnd, json.loads(json.dumps(good)))
            return dumped(value) if rnd.random() < 0.8 else damaged(rnd, dumped(good))
        content = (
            f"[reader]\nkeys = {toml_value(rnd)}\n[writer]\ntables = {toml_value(rnd)}\n".encode()
        )
        return damaged(rnd, content) if rnd.random() < 0.3 else content

    def reading(_rnd: Random) -> int:
        with contextlib.suppress(EventlogError):
            read_map(path)
        return 0

    run(cases * OF_A_FILE, path, case, reading, least=0)
