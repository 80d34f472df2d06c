"""``eventlog convert`` and ``eventlog decode``: paths, standard input and output, reports, exit
codes.
"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from loss_formats import CATALOG, LABELS, LETTERS, TRIED
from loss_samples import SAMPLES
from shared import Run, met
from sqlalchemy import make_url

from eventlog import cli
from eventlog.changes.json_form import dumps, loads
from eventlog.cli.convert.convert import block
from eventlog.errors import DatabaseError
from eventlog.exit_codes import ExitCode
from eventlog.registry import FORMATS, names

UPDATE = (
    '{"schema":"app","table":"item","op":"UPDATE","key":[["id",7]],"before":{"id":7,"name":"nut","price":"1.50"},'
    '"after":{"id":7,"name":"nut","price":"1.75"},"changed":["price"],"position":"12","commit_time":'
    '"2024-05-10T12:00:00Z"}\n'
)
DELETE = '{"schema":"app","table":"item","op":"DELETE","key":[["id",8]],"position":"13"}\n'


@pytest.fixture
def run(empty_home: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Run a command line in a directory that holds ``in.jsonl``: exit code, standard output,
    standard error.
    """
    (empty_home / "in.jsonl").write_text(UPDATE + DELETE)

    def run(*arguments: str) -> tuple[int, str, str]:
        code = cli.run(arguments)
        captured = capfdbinary.readouterr()
        return code, captured.out.decode(), captured.err.decode()

    return run


ITEM = {
    "dialect": "postgresql",
    "schema": "app",
    "tables": [
        {
            "name": "item",
            "kind": "table",
            "columns": [
                {"name": "id", "type": "integer"},
                {"name": "name", "type": "varchar(20)"},
                {"name": "price", "type": "decimal(9,2)"},
            ],
            "primary_key": ["id"],
        }
    ],
}
CONVERT = ("convert", "--from", "jsonl", "--to")


def test_changes_go_from_file_to_file_and_the_report_shows_what_was_done(
    run: Run, tmp_path: Path
) -> None:
    code, out, err = run(*CONVERT, "eventlog", "in.jsonl", "out.csv")
    assert (code, err) == (0, "")
    *lines, lost = out.splitlines()
    assert [line.split() for line in lines] == [
        ["what", "number"],
        ["changes", "read", "2"],
        ["changes", "written", "2"],
    ]
    assert lost.startswith("lost by design: ")
    assert (tmp_path / "out.csv").read_text().count("\n") == 3


@pytest.mark.promise("code error-invalid_format")
def test_the_report_is_there_for_programs(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text(UPDATE + "nonsense\n")
    code, out, err = run(*CONVERT, "xds", "--json", "in.jsonl", "out.xmll")
    assert (code, err) == (0, "")
    report = json.loads(out)
    assert (report["read"], report["written"], report["counters"]) == (1, 1, {"invalid_format": 1})
    assert "in.jsonl, line 2" in report["problems"][0]


def test_what_was_passed_over_is_reported(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text(UPDATE + '{"schema":"app","table":"item","op":"TRUNCATE"}\n')
    code, out, err = run(*CONVERT, "xds", "in.jsonl", "out.xmll")
    assert code == 0
    assert "skipped: TRUNCATE of 'item'" in err
    assert "not_expressible  1" in out


KEPT = "what stood there\n"


@pytest.mark.promise(
    "command convert",
    "exit convert 1",
    "option several--from",
    "option convert--from",
    "option convert--to",
)
def test_a_wrong_from_leaves_the_target_as_it_was(run: Run, tmp_path: Path) -> None:
    good = tmp_path / "good.jsonl"
    good.write_text(KEPT)
    code, _, err = run("convert", "--from", "debezium", "--to", "jsonl", "in.jsonl", str(good))
    assert code == 1
    assert good.read_text() == KEPT
    assert "skipped: in.jsonl, line 1" in err
    assert "nothing was written, and the target is unchanged: 2 things passed over" in err


@pytest.mark.parametrize("source", sorted(LETTERS))
def test_no_format_read_as_another_empties_a_file(run: Run, tmp_path: Path, source: str) -> None:
    SAMPLES[source](tmp_path / TRIED[source].target)
    for other in names(FORMATS):
        good = tmp_path / "good.jsonl"
        good.write_text(KEPT)
        code, _, err = run(
            "convert", "--from", other, "--to", "jsonl", TRIED[source].target, str(good)
        )
        assert (code == 0) != (good.read_text() == KEPT), (other, code, err)
        assert good.read_text() != "" or "IN contains no change" in err


@pytest.mark.parametrize("target", sorted(LETTERS))
def test_a_target_is_kept_where_its_format_can_hold_no_change(
    run: Run, tmp_path: Path, target: str
) -> None:
    (tmp_path / "in.jsonl").write_text("{}\n[]\n")
    out = tmp_path / "out" / TRIED[target].target
    out.parent.mkdir()
    code, _, err = run("convert", "--from", "jsonl", "--to", LETTERS[target], "in.jsonl", str(out))
    assert (code, list(out.parent.iterdir())) == (1, []), err


def test_the_report_for_programs_is_there_where_nothing_was_written(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "in.jsonl").write_text("{}\n")
    code, out, _ = run(
        "convert", "--from", "jsonl", "--to", "xds", "--json", "in.jsonl", "out.xmll"
    )
    told = json.loads(out)
    assert (code, told["written"], told["counters"]) == (1, 0, {"invalid_format": 1})
    assert not (tmp_path / "out.xmll").exists()


def test_an_empty_source_is_reported_and_is_no_error(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text("")
    code, _, err = run("convert", "--from", "jsonl", "--to", "xds", "in.jsonl", "out.xmll")
    assert (code, (tmp_path / "out.xmll").read_text()) == (0, "")
    assert "IN contains no change" in err
    code, _, err = run(
        "--quiet", "convert", "--from", "jsonl", "--to", "xds", "in.jsonl", "out.xmll"
    )
    assert (code, err) == (0, "")


@pytest.mark.parametrize("arguments", [("--quiet",), ()])
def test_standard_input_and_output_stand_for_files(
    run: Run, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(UPDATE.encode())))
    code, out, err = run(*arguments, *CONVERT, "eventlog", "-", "-")
    assert code == 0
    assert json.loads(out)["table_key"] == "id=7"
    assert ("changes written" in err) == (not arguments)


def test_options_come_from_a_map(run: Run, tmp_path: Path) -> None:
    (tmp_path / "map.toml").write_text(
        '[writer]\nrow_style = "row_query_back"\nfile_format = "csv"\n'
    )
    code, out, _ = run(*CONVERT, "eventlog", "--options", "map.toml", "in.jsonl", "-")
    assert code == 0
    assert '1,"N",6,' in out


@pytest.mark.parametrize(
    "command",
    [
        (*CONVERT, "gbase", "in.jsonl", "postgresql://ann:hush@db/shop"),
        (
            "convert",
            "--from",
            "qlik-messages",
            "--to",
            "jsonl",
            "postgresql://ann:hush@db/shop",
            "out",
        ),
        ("decode", "--from", "xds", "postgresql://ann:hush@db/shop"),
    ],
)
def test_no_message_repeats_the_password_of_a_url(run: Run, command: tuple[str, ...]) -> None:
    code, out, err = run(*command)
    assert code == 2
    assert "hush" not in out + err


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        (
            (*CONVERT, "xml", "in.jsonl", "out"),
            2,
            "format 'xml' is not known; formats that can be written are xds, ",
        ),
        ((*CONVERT, "xds", "in.jsonl"), 2, "Missing argument 'OUT'"),
        ((*CONVERT, "xds", "--options", "map.json", "in.jsonl", "out"), 2, "did you mean writer"),
        (
            (*CONVERT, "xds", "--options", "nowhere.json", "in.jsonl", "out"),
            2,
            "cannot read the options file nowhere.json: No such file",
        ),
        (
            (*CONVERT, "xds", "--options", "lost.toml", "in.jsonl", "out"),
            2,
            "cannot read the catalog lost.json: No such file",
        ),
        (
            (*CONVERT, "xds", "in.jsonl", "nowhere/out"),
            2,
            "out cannot be written: the directory nowhere does not exist",
        ),
        (
            (*CONVERT, "gbase", "in.jsonl", "sqlite:///out"),
            2,
            "gbase does not accept sqlite://...; name a file",
        ),
        (
            (*CONVERT, "qlik-messages", "in.jsonl", "sqlite:///out"),
            2,
            "name a file or a directory, or kafka://...",
        ),
        (("decode", "--from", "gbase", "sqlite:///in"), 2, "gbase does not accept sqlite://..."),
        (
            ("convert", "--from", "linter", "--to", "xds", "sqlite:///q.db", "out"),
            1,
            "there is no database file 'q.db'",
        ),
        (
            ("decode", "--from", "qlik-change-table", "sqlite:///q.db"),
            1,
            "there is no database file 'q.db'",
        ),
        ((*CONVERT, "xds", "nowhere.jsonl", "out"), 1, "nowhere.jsonl: No such file"),
        ((*CONVERT, "xds", "--json", "in.jsonl", "-"), 2, "both write to standard output"),
        (
            (*CONVERT, "xds", "--strict", "bad.jsonl", "out"),
            4,
            "bad.jsonl, line 1: the line is not JSON",
        ),
        ((*CONVERT, "eventlog", "in.jsonl", "out.txt"), 2, "file_format = jsonl | csv | parquet"),
        ((*CONVERT, "qlik-change-table", "in.jsonl", "-"), 2, "written to several files"),
        (
            (*CONVERT, "linter", "--options", "complete.json", "in.jsonl", "-"),
            2,
            "written to several files",
        ),
        (("decode", "--from", "jsonl", "--strict", "bad.jsonl"), 4, "bad.jsonl, line 1"),
    ],
)
def test_what_is_wrong_is_one_line_and_an_exit_code(
    run: Run, tmp_path: Path, arguments: tuple[str, ...], code: int, part: str
) -> None:
    (tmp_path / "map.json").write_text('{"reader": {}, "writr": {}}')
    (tmp_path / "lost.toml").write_text('catalog = "lost.json"\n')
    (tmp_path / "bad.jsonl").write_text("nonsense\n")
    (tmp_path / "complete.json").write_text(json.dumps({"writer": {"catalog": ITEM}}))
    found, _, err = run(*arguments)
    assert found == code
    assert part in err
    assert err.startswith("eventlog: ")
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.promise("exit convert 4", "option convert--strict")
def test_strict_ends_with_4_if_the_target_has_no_place_for_something(
    run: Run, empty_home: Path
) -> None:
    code, out, err = run(*CONVERT, "xds", "--strict", "in.jsonl", "out")
    assert code == ExitCode.NO
    assert err.splitlines()[-1] == (
        "eventlog: with --strict, something was lost: commit time of 1 change; "
        "1 unchanged column of updated rows; 1 unchanged column of rows before updates"
    ), out
    assert (empty_home / "out").exists()


def test_strict_ends_with_4_for_what_is_only_counted(run: Run, empty_home: Path) -> None:
    nothing = UPDATE.replace('"changed":["price"]', '"changed":[]')
    (empty_home / "in.jsonl").write_text(DELETE + nothing)
    code, _, err = run(*CONVERT, "eventlog", "--strict", "in.jsonl", "out.jsonl")
    assert code == ExitCode.NO
    assert "something was lost: 1 changes_nothing" in err.splitlines()[-1]
    assert run(*CONVERT, "eventlog", "in.jsonl", "out.jsonl")[0] == ExitCode.DONE


@pytest.mark.promise("option decode--from")
def test_strict_ends_with_0_if_nothing_is_lost(run: Run) -> None:
    assert run(*CONVERT, "jsonl", "--strict", "in.jsonl", "out.jsonl")[::2] == (ExitCode.DONE, "")
    assert run("decode", "--from", "jsonl", "--strict", "in.jsonl")[0] == ExitCode.DONE


def test_strict_leaves_the_target_as_it_was_if_a_change_cannot_be_read(
    run: Run, empty_home: Path
) -> None:
    (empty_home / "in.jsonl").write_text(UPDATE + "nonsense\n")
    (empty_home / "out.jsonl").write_text("before")
    code, _, err = run(*CONVERT, "jsonl", "--strict", "in.jsonl", "out.jsonl")
    assert code == ExitCode.NO
    assert "in.jsonl, line 2: the line is not JSON" in err.splitlines()[-1]
    assert (empty_home / "out.jsonl").read_text() == "before"


@pytest.mark.promise("command decode")
def test_decode_shows_one_block_per_change(run: Run) -> None:
    code, out, err = run("decode", "--from", "jsonl", "in.jsonl")
    assert code == 0
    assert out.splitlines() == [
        "UPDATE app.item id=7",
        "  position: 12",
        "  committed: 2024-05-10 12:00:00+00:00",
        "    id     7",
        "    name   'nut'",
        "  * price  '1.50' -> '1.75'",
        "",
        "DELETE app.item id=8",
        "  position: 13",
        "",
    ]
    assert "changes read" in err
    assert "written" not in err


@pytest.mark.parametrize(
    ("line", "lines"),
    [
        (
            '{"table":"t","op":"UPDATE","key":[["id",2]],"before":{"id":1,"b":{"hex":"00FF"}},"after":{"id":2,"c":null},'
            '"event_number":3,"last_in_transaction":true,"transaction_id":"A1","user":"a\\nb","extras":{"label":5}}',
            [
                "UPDATE t id=1 -> id=2",
                "  transaction: A1",
                "  event: 3 (the last)",
                r"  user: a\nb",
                "    id  1 -> 2",
                "    b   00FF -> (not known)",
                "    c   (not known) -> NULL",
                "  (label: 5)",
            ],
        ),
        ('{"table":"t\\u001b[2J","op":"TRUNCATE"}', [r"TRUNCATE t\x1b[2J"]),
        (
            '{"table":"t","op":"INSERT","after":{"p":["a",{"hex":"01"}]}}',
            ["INSERT t", "    p  ('a', 01)"],
        ),
    ],
)
def test_a_block_shows_all_that_a_change_contains(line: str, lines: list[str]) -> None:
    assert block(loads(line)) == lines


VECTORS = Path(__file__).parents[1] / "conformance" / "vectors"


def test_decode_lists_a_stream_with_byte_offsets(run: Run, tmp_path: Path) -> None:
    streams = json.loads((VECTORS / "gbase.json").read_text())["streams"]
    (tmp_path / "capture.cdc").write_bytes(bytes.fromhex(streams[0]["hex"]))
    code, out, _ = run("decode", "--from", "gbase", "capture.cdc")
    assert code == 0
    assert out.startswith("00000000  ")
    assert "payload size" in out


@pytest.mark.promise("option decode--options")
def test_decode_lists_a_queue_with_the_places_of_its_rows(run: Run, tmp_path: Path) -> None:
    queue = json.loads((VECTORS / "linter.json").read_text())["queues"][0]
    (tmp_path / "queue.jsonl").write_text("".join(json.dumps(row) + "\n" for row in queue["rows"]))
    (tmp_path / "map.json").write_text(
        json.dumps(
            {
                "codec": "eventlog-emulator-1",
                "final": True,
                "dispatch_attrs": queue["dispatch_attrs"],
            }
        )
    )
    code, out, _ = run("decode", "--from", "linter", "--options", "map.json", "queue.jsonl")
    lines = out.splitlines()
    assert code == 0
    assert lines[0] == "row 1  SYSLOG_ADDR 3:100  TYP 2 INSERT  transaction 28"
    assert "row 4  SYSLOG_ADDR 3:400  TYP 4 COMMIT  transaction 28" in lines
    assert "INSERT APP.ITEM ID=1" in lines


NAMES = list(names(FORMATS))
MAPS: dict[str, dict[str, dict[str, object]]] = {
    "gbase": {"reader": {"labels": LABELS}, "writer": {"labels": LABELS}},
    "linter": {"reader": {"codec": "eventlog-emulator-1"}, "writer": {}},
}
"""What formats need in addition to a catalogue."""


# Each format as source and as target, and with JSON lines in both directions. Every other pair is
# converted with these options by test_convert_losses, without a command line.
@pytest.mark.promise("option convert--options")
@pytest.mark.parametrize(
    ("source", "target"),
    met(
        NAMES,
        NAMES,
        also=[*((name, "jsonl") for name in NAMES), *(("jsonl", name) for name in NAMES)],
    ),
)
def test_any_format_is_converted_to_any_other(
    run: Run, tmp_path: Path, source: str, target: str
) -> None:
    letters = {name: letter for letter, name in LETTERS.items()}
    tried = TRIED[letters.get(source, "E")]
    place = tried.target
    SAMPLES[tried.letter](tmp_path / place)
    if source == "jsonl":
        place = "changes.jsonl"
        (tmp_path / place).write_text(
            "".join(dumps(change) + "\n" for change in tried.read(tmp_path / tried.target))
        )
    (tmp_path / "shop.json").write_text(json.dumps(CATALOG))
    map = {
        "catalog": "shop.json",
        "reader": MAPS.get(source, {}).get("reader", {}),
        "writer": MAPS.get(target, {}).get("writer", {}),
    }
    (tmp_path / "map.json").write_text(json.dumps(map))
    (tmp_path / "out").mkdir()
    out = f"out/{'changes.jsonl' if target == 'jsonl' else TRIED[letters[target]].target}"
    code, said, err = run(
        "convert", "--from", source, "--to", target, "--options", "map.json", "--json", place, out
    )
    assert (code, err) == (0, "")
    report = json.loads(said)
    assert report["read"] > 1
    assert 1 <= report["written"] <= report["read"]
    assert (tmp_path / out).exists()


def test_the_captured_stream_of_the_source_document_is_its_one_transaction(
    run: Run, tmp_path: Path
) -> None:
    streams = json.loads((VECTORS / "gbase.json").read_text())["streams"]
    capture = next(stream for stream in streams if stream["name"] == "capture stream")
    (tmp_path / "capture.cdc").write_bytes(bytes.fromhex(capture["hex"]))
    (tmp_path / "map.json").write_text(json.dumps(capture["options"]))

    code, listed, _ = run("decode", "--from", "gbase", "capture.cdc")
    assert code == 0
    assert "00000099  INSERT of label_111  transaction 0000000b01746018" in listed
    assert "c2 varchar(20,0): 'abcabcabc'" in listed
    assert "end of the stream, 0 transactions open" in listed

    code, written, _ = run(
        "convert", "--from", "gbase", "--to", "jsonl", "--options", "map.json", "capture.cdc", "-"
    )
    assert code == 0
    (change,) = map(json.loads, written.splitlines())
    assert (change["table"], change["op"], change["after"]) == (
        "t1",
        "INSERT",
        {"c1": 15, "c2": "abcabcabc"},
    )
    assert change["position"] == "0000000b017460a0:0000000b01746050"
    assert change["last_in_transaction"] is True


@pytest.mark.promise("option database.password", "option eventlog.reader.database_url")
@pytest.mark.parametrize("host", ["db.example", "evil.example"])
@pytest.mark.parametrize("place", ["source", "target", "database_url", "decoded"])
def test_the_password_of_the_configured_database_goes_to_no_other(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, host: str, place: str
) -> None:
    asked: list[str | None] = []

    def connect(url: str, *, password: str | None = None, **_: object) -> None:
        asked.append(password or make_url(url).password)
        raise DatabaseError("not today")

    monkeypatch.setattr("eventlog.log.live.connect", connect)
    monkeypatch.setenv("EVENTLOG_DATABASE_URL", "postgresql+psycopg://publisher@db.example/hr")
    monkeypatch.setenv("EVENTLOG_DATABASE_PASSWORD", "geheim")
    url = f"postgresql://publisher@{host}/hr"
    SAMPLES["E"](tmp_path / "log.jsonl")
    (tmp_path / "map.json").write_text(json.dumps({"reader": {"database_url": url}, "writer": {}}))
    arguments = {
        "source": ("--from", "eventlog", "--to", "jsonl", url, "out.jsonl"),
        "target": ("--from", "jsonl", "--to", "eventlog", "in.jsonl", url),
        "database_url": (
            "--from",
            "eventlog",
            "--to",
            "jsonl",
            "--options",
            "map.json",
            "log.jsonl",
            "out.jsonl",
        ),
        "decoded": ("--from", "eventlog", "--options", "map.json", "log.jsonl"),
    }[place]
    code, _, err = run("decode" if place == "decoded" else "convert", *arguments)
    assert (code, "not today" in err, "geheim" in err) == (1, True, False)
    assert asked == ["geheim" if host == "db.example" else None]
