"""Broken input of every format on the command line: the message names the file, the place in it,
and what is wrong.
"""

from __future__ import annotations

import csv
import json
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from loss_formats import CATALOG, LABELS, TRIED
from loss_samples import SAMPLES
from shared import Run

from eventlog import cli
from eventlog.conversion import convert
from eventlog.exit_codes import ExitCode
from eventlog.gbase.records import INSERT

LETTERS = {
    "xds": "X",
    "eventlog": "E",
    "qlik-change-table": "T",
    "qlik-messages": "K",
    "gbase": "G",
    "linter": "L",
}
MAP = {"gbase": {"labels": LABELS}, "linter": {"codec": "eventlog-emulator-1"}}
QUEUE, ATTRS = "queue/dispatch_queue.csv", "queue/dispatch_attrs.csv"
Break = Callable[[bytes], bytes]


@pytest.fixture
def run(empty_home: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Run a command line in an empty directory: exit code, standard output, standard error."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = cli.run(arguments)
        captured = capfdbinary.readouterr()
        return code, captured.out.decode(), captured.err.decode()

    return run


def sample(format: str, place: str) -> Path:
    """A good file of the format; of several files the one with the rows."""
    path = Path(place)
    if format == "jsonl":
        sample("eventlog", "log.jsonl")
        convert("eventlog", "jsonl", "log.jsonl", place)
    elif format == "eventlog" and path.suffix != ".jsonl":
        sample("eventlog", "log.jsonl")
        convert("eventlog", "eventlog", "log.jsonl", place, {"catalog": CATALOG})
    else:
        root = (
            Path(TRIED[LETTERS[format]].target)
            if format in ("linter", "qlik-change-table")
            else path
        )
        SAMPLES[LETTERS[format]](root)
        if format == "qlik-change-table":
            (path,) = root.glob("*/*.csv")
    return path


def line(number: int, text: bytes) -> Break:
    """Another line in the place of the one with this number."""

    def broken(data: bytes) -> bytes:
        lines = data.splitlines(keepends=True)
        return b"".join([*lines[: number - 1], text + b"\n", *lines[number:]])

    return broken


def cell(number: int, column: str, text: str) -> Break:
    """Another value in a line of CSV."""

    def broken(data: bytes) -> bytes:
        rows = list(csv.reader(data.decode().splitlines()))
        rows[number - 1][rows[0].index(column)] = text
        return "".join(",".join(row) + "\n" for row in rows).encode()

    return broken


def offset_of(data: bytes, number: int) -> int:
    """Where the first record of this number begins."""
    at = 0
    while struct.unpack_from(">I", data, at + 12)[0] != number:
        at += sum(struct.unpack_from(">II", data, at))
    return at


def record(number: int, place: int, value: bytes) -> Break:
    """Other bytes in the first record of this number."""

    def broken(data: bytes) -> bytes:
        at = offset_of(data, number) + place
        return data[:at] + value + data[at + len(value) :]

    return broken


def cut(data: bytes) -> bytes:
    return data[: len(data) - 10]


def unpackable(data: bytes) -> bytes:
    """A Parquet file with a page that cannot be unpacked."""
    return data[:20] + b"\xff" * 40 + data[60:]


BAD_KEY = b'{"record_id":3,"status":"N","event_type":4,"table_name":"item","table_key":"("}'
BAD_ASSOCIATION = b"""<nds><input>
<delete class-name="item" event-id="5"><association>(</association></delete></input></nds>"""
BROKEN: list[tuple[str, str, Break, list[str]]] = [
    ("jsonl", "in.jsonl", line(2, b"nonsense"), ["in.jsonl, line 2: ", "not JSON"]),
    (
        "jsonl",
        "in.jsonl",
        line(2, b"\xff\xfe{}"),
        ["in.jsonl, line 2: ", "not UTF-8: byte FF at 0"],
    ),
    (
        "jsonl",
        "in.jsonl",
        line(2, b'{"table":"t","op":"MERGE"}'),
        ["in.jsonl, line 2: ", "use one of INSERT, UPDATE"],
    ),
    ("eventlog", "in.jsonl", line(3, b"[]"), ["in.jsonl, line 3: ", "a row must be a JSON object"]),
    ("eventlog", "in.jsonl", line(3, BAD_KEY), ["in.jsonl, record_id 3: ", "table_key '('"]),
    (
        "eventlog",
        "in.jsonl",
        line(3, b'{"record_id":1,"event_type":1,"status":"N"}'),
        ["in.jsonl: record_id 1 comes after record_id 2", "sort the file, or set sort"],
    ),
    (
        "eventlog",
        "in.csv",
        lambda data: data + b'900,"N',
        ["in.csv, line 17: ", "a quoted field has no end"],
    ),
    (
        "eventlog",
        "in.csv",
        line(3, b'3,"N",4,\xff,,"item","id=7",,,'),
        ["in.csv, line 3: ", "not UTF-8"],
    ),
    (
        "eventlog",
        "in.csv",
        line(3, b"3,4"),
        ["in.csv, line 3: ", "2 fields, but the first line names 10"],
    ),
    ("eventlog", "in.parquet", cut, ["in.parquet, after row 0: ", "not Parquet"]),
    ("eventlog", "in.parquet", unpackable, ["in.parquet, after row 0: ", "not Parquet"]),
    (
        "xds",
        "in.xmll",
        line(1, b"<nds><input><add/></input></nds>"),
        ["in.xmll, line 1: add must have exactly one association"],
    ),
    ("xds", "in.xmll", line(1, b"<nds><input></nds>"), ["in.xmll, line 1: not well-formed"]),
    (
        "xds",
        "in.xml",
        lambda data: b"<nds>\n<input>\n<odd></input></nds>",
        ["in.xml, line 3: not well-formed"],
    ),
    (
        "xds",
        "in.xml",
        lambda data: BAD_ASSOCIATION,
        ["in.xml: delete of 'item', event '5', association '('"],
    ),
    (
        "gbase",
        "in.cdc",
        cut,
        [
            "in.cdc: ",
            "ends inside the record at offset 1275",
            "cut off, or continues in another file",
        ],
    ),
    (
        "gbase",
        "in.cdc",
        record(INSERT, 8, bytes(4)),
        ["in.cdc: at offset 204 (0xcc) of the stream: packet scheme 0"],
    ),
    (
        "gbase",
        "in.cdc",
        record(INSERT, 36, b"\xff" * 4),
        ["in.cdc: at offset 204 (0xcc) of the stream: ", "size array FFFFFFFF"],
    ),
    (
        "gbase",
        "in.cdc",
        record(INSERT, 28, b"\xff"),
        ["in.cdc: at offset 204 (0xcc) of the stream: ", "no TABSCHEM"],
    ),
    (
        "gbase",
        "in.cdc",
        record(200, 39, b"x"),
        ["in.cdc: at offset 0 (0x0) of the stream: ", "remove the column"],
    ),
    (
        "linter",
        QUEUE,
        cell(2, "OPER_DATE", "zz"),
        ["dispatch_queue.csv, line 2: ", "neither six bytes nor twelve hex digits"],
    ),
    (
        "linter",
        QUEUE,
        cell(3, "LEN1", "x"),
        ["dispatch_queue.csv, line 3: ", "column LEN1 contains 'x'"],
    ),
    (
        "linter",
        QUEUE,
        cell(1, "LEN1", "LEN"),
        ["dispatch_queue.csv, line 1: ", "LEN1 of DISPATCH_QUEUE"],
    ),
    (
        "linter",
        QUEUE,
        cell(3, "TYP", "77"),
        ["dispatch_queue.csv: SYSLOG_ADDR 1:140 of 'EVENTLOG': "],
    ),
    (
        "linter",
        QUEUE,
        line(3, b"1,2"),
        ["dispatch_queue.csv, line 3: ", "2 fields, but the first line names 16"],
    ),
    (
        "linter",
        QUEUE,
        line(3, b"1," + b"2" * 200_000),
        ["dispatch_queue.csv, line 3: ", "2 fields, but the first"],
    ),
    (
        "linter",
        ATTRS,
        cell(2, "TYP", "x"),
        ["dispatch_attrs.csv, line 2: ", "column TYP contains 'x'"],
    ),
    ("qlik-messages", "in.jsonl", line(2, b"nonsense"), ["in.jsonl, line 2: ", "not JSON"]),
    ("qlik-messages", "in.jsonl", line(3, b"[" * 100_000), ["in.jsonl, line 3: ", "not JSON"]),
    (
        "qlik-messages",
        "in.jsonl",
        line(3, b'{"value":5}'),
        ["in.jsonl, line 3: ", "a message must be a JSON object"],
    ),
    (
        "qlik-messages",
        "in.jsonl",
        line(3, b'{"value":{"hex":"00FF"}}'),
        ["in.jsonl, line 3: ", "prefix of a registry"],
    ),
]


@pytest.mark.parametrize(("format", "place", "break_", "parts"), BROKEN)
@pytest.mark.parametrize("strict", [True, False])
def test_a_message_names_the_file_and_the_place(
    run: Run, format: str, place: str, break_: Break, parts: list[str], strict: bool
) -> None:
    path = sample(format, place)
    path.write_bytes(break_(path.read_bytes()))
    Path("map.json").write_text(json.dumps({"reader": MAP.get(format, {})}))
    source = QUEUE if format == "linter" else str(path)
    options = ["--options", "map.json", *(["--strict"] if strict else [])]
    code, _, err = run("convert", "--from", format, "--to", "jsonl", *options, source, "out.jsonl")
    message = next(one for one in err.splitlines() if parts[0] in one)
    assert message.startswith("eventlog: " if strict else ("eventlog: ", "skipped: "))
    assert all(part in message for part in parts), message
    assert code == 0 or not Path("out.jsonl").exists()
    assert code in (ExitCode.FAILED, ExitCode.NO) or not strict


@pytest.mark.parametrize(
    ("format", "name", "data", "part"),
    [
        ("jsonl", "standard input, line 1: ", b"nonsense\n", "not JSON"),
        ("xds", "standard input, line 1: ", b"<nds>", "not well-formed"),
        (
            "gbase",
            "standard input: at offset 0",
            b"no stream of this format at all",
            "packet scheme",
        ),
        ("eventlog", "standard input, line 1: ", b"nonsense\n", "not JSON"),
        ("linter", "standard input, line 1: ", b"nonsense\n", "not JSON"),
        ("qlik-messages", "standard input, line 1: ", b"nonsense\n", "not JSON"),
    ],
)
@pytest.mark.parametrize("strict", [("--strict",), ()])
@pytest.mark.parametrize("is_pipe", [True, False])
@pytest.mark.parametrize("command", ["convert", "decode"])
def test_standard_input_is_called_so(
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    format: str,
    name: str,
    data: bytes,
    part: str,
    strict: tuple[str, ...],
    is_pipe: bool,
    command: str,
) -> None:
    if is_pipe:
        reading, writing = os.pipe()
        os.write(writing, data)
        os.close(writing)
        monkeypatch.setattr(sys, "stdin", os.fdopen(reading))
    else:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=BytesIO(data)))
    to = ("--to", "jsonl", *strict, "-", "out.jsonl") if command == "convert" else (*strict, "-")
    _, out, err = run(command, "--from", format, *to)
    if is_pipe:
        sys.stdin.close()
    (message,) = (one for one in err.splitlines() if part in one)
    assert name in message
    assert "/dev/fd" not in out + err
    assert "/tmp" not in out + err


def test_a_directory_of_captures_names_the_file_of_the_record_and_the_place_in_it(
    run: Run, tmp_path: Path
) -> None:
    data = sample("gbase", "whole.cdc").read_bytes()
    bad = record(INSERT, 36, b"\xff" * 4)(data)
    Path("streams").mkdir()
    for number, at in enumerate(range(0, len(bad), 150), 1):
        Path(f"streams/{number}.cdc").write_bytes(bad[at : at + 150])
    Path("streams/_SUCCESS").write_text("no record")
    code, _, err = run("convert", "--from", "gbase", "--to", "jsonl", "streams", "out.jsonl")
    assert code == 0
    assert "skipped: streams/2.cdc, offset 54: at offset 204 (0xcc) of the stream: column" in err
    Path("none").mkdir()
    code, _, err = run("convert", "--from", "gbase", "--to", "jsonl", "none", "out.jsonl")
    assert (code, err) == (
        1,
        "eventlog: the directory none contains no file of a stream [invalid_format]\n",
    )
    code, _, err = run("convert", "--from", "qlik-messages", "--to", "jsonl", "none", "out.jsonl")
    assert (code, err) == (
        1,
        "eventlog: the directory none contains no file of messages [invalid_format]\n",
    )


@pytest.mark.parametrize(
    ("column", "text", "part"),
    [
        ("header__change_seq", "zz", "'zz'"),
        ("header__change_mask", "zz", "mask"),
        ("header__timestamp", "zz", "timestamp 'zz'"),
    ],
)
def test_a_row_of_a_change_table_is_named_by_its_file_and_number(
    run: Run, column: str, text: str, part: str
) -> None:
    path = sample("qlik-change-table", "tables")
    path.write_bytes(cell(3, column, text)(path.read_bytes()))
    code, _, err = run(
        "convert", "--from", "qlik-change-table", "--to", "jsonl", str(path.parents[1]), "out.jsonl"
    )
    (message,) = (one for one in err.splitlines() if str(path) in one)
    assert code == 0
    assert message.startswith(f"skipped: {path}: record 2: ")
    assert part in message


# What stands where OUT is, before and after.


@pytest.mark.parametrize("format", [*LETTERS, "jsonl"])
def test_a_directory_that_is_not_there_is_an_error_of_every_format(run: Run, format: str) -> None:
    sample("jsonl", "in.jsonl")
    code, _, err = run(
        "convert", "--from", "jsonl", "--to", format, "in.jsonl", "none/deep/out.jsonl"
    )
    assert code == 2
    assert "the directory none/deep does not exist; create it, or correct the path" in err
    assert not Path("none").exists()


@pytest.mark.parametrize(
    ("format", "source", "to", "target"),
    [
        ("jsonl", "in.jsonl", "jsonl", "in.jsonl"),
        ("jsonl", "in.jsonl", "xds", "./link.jsonl"),
        ("linter", "queue", "linter", "queue"),
        ("linter", QUEUE, "linter", "queue"),
        ("linter", "queue", "jsonl", "queue/changes.jsonl"),
        ("gbase", ".", "jsonl", "changes.jsonl"),
    ],
)
def test_the_input_is_never_written_over(
    run: Run, format: str, source: str, to: str, target: str
) -> None:
    sample("jsonl", "in.jsonl")
    sample("linter", QUEUE)
    Path("link.jsonl").symlink_to("in.jsonl")
    before = Path("in.jsonl").read_bytes(), Path(QUEUE).read_bytes()
    code, _, err = run("convert", "--from", format, "--to", to, source, target)
    assert code == 2
    assert "is IN, contains it or is inside it" in err
    assert (Path("in.jsonl").read_bytes(), Path(QUEUE).read_bytes()) == before


def test_a_file_that_is_there_is_replaced_with_its_mode_and_a_link_stays_a_link(run: Run) -> None:
    sample("jsonl", "in.jsonl")
    Path("real.jsonl").write_text("what was there")
    Path("real.jsonl").chmod(0o600)
    Path("out.jsonl").symlink_to("real.jsonl")
    assert run("-q", "convert", "--from", "jsonl", "--to", "jsonl", "in.jsonl", "out.jsonl") == (
        0,
        "",
        "",
    )
    assert Path("out.jsonl").is_symlink()
    assert Path("real.jsonl").read_bytes() == Path("in.jsonl").read_bytes()
    assert Path("real.jsonl").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("format", ["jsonl", "xds", "gbase", "qlik-messages"])
def test_a_device_is_written_to_and_a_full_one_is_named(run: Run, format: str) -> None:
    sample("jsonl", "in.jsonl")
    options = ("--options", "map.json")
    Path("map.json").write_text(json.dumps({"catalog": CATALOG}))
    code, _, err = run(
        "convert", "--from", "jsonl", "--to", format, *options, "in.jsonl", "/dev/full"
    )
    assert (code, err) == (1, "eventlog: /dev/full: No space left on device\n")
    assert (
        run("-q", "convert", "--from", "jsonl", "--to", format, *options, "in.jsonl", "/dev/null")[
            0
        ]
        == 0
    )
    assert not Path("/dev/null").is_file()


@pytest.mark.promise("option eventlog.reader.file_format")
def test_what_needs_a_regular_file_does_not_take_the_place_of_a_device(run: Run) -> None:
    sample("jsonl", "in.jsonl")
    Path("map.json").write_text(json.dumps({"writer": {"file_format": "parquet"}}))
    code, _, err = run(
        "convert",
        "--from",
        "jsonl",
        "--to",
        "eventlog",
        "--options",
        "map.json",
        "in.jsonl",
        "/dev/null",
    )
    needed = "is not a regular file, which this format needs: give the path of a file [config]\n"
    assert (code, err) == (2, f"eventlog: /dev/null {needed}")
    reading, writing = os.pipe()
    pipe = f"/dev/fd/{writing}"
    code, _, err = run(
        "convert", "--from", "jsonl", "--to", "eventlog", "--options", "map.json", "in.jsonl", pipe
    )
    os.close(reading)
    os.close(writing)
    assert (code, err) == (2, f"eventlog: {pipe} {needed}")


def test_a_queue_that_cannot_be_written_leaves_no_directory(run: Run) -> None:
    sample("jsonl", "in.jsonl")
    code, _, err = run(
        "convert", "--from", "jsonl", "--to", "linter", "--strict", "in.jsonl", "queue"
    )
    assert code == ExitCode.NO
    assert "is not described" in err
    assert not Path("queue").exists()


def test_a_catalogue_that_is_none_is_named(run: Run) -> None:
    sample("jsonl", "in.jsonl")
    Path("shop.json").write_text('{"tables": [{"name": "item", "kind": "table", "colums": []}]}')
    Path("map.json").write_text('{"catalog": "shop.json"}')
    code, _, err = run(
        "convert",
        "--from",
        "jsonl",
        "--to",
        "jsonl",
        "--options",
        "map.json",
        "in.jsonl",
        "out.jsonl",
    )
    assert code == 2
    assert err.startswith("eventlog: shop.json: ")


def test_problems_that_are_alike_are_reported_once(run: Run) -> None:
    change = '{"schema":"app","table":"item","op":"TRUNCATE"}\n'
    Path("in.jsonl").write_text(
        change * 50 + "".join(f'{{"table":"t{number}","op":"X"}}\n' for number in range(40))
    )
    code, _, err = run("convert", "--from", "jsonl", "--to", "xds", "in.jsonl", "out.xmll")
    lines = err.splitlines()
    assert code == 1  # nothing was written
    assert sum("TRUNCATE of 'item'" in one for one in lines) == 1
    assert lines[0].endswith("(50 times or more)")
    assert sum(one.startswith("skipped: ") for one in lines) == 21
    assert "or more others; --strict stops at the first" in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_conversion_that_is_stopped_leaves_what_was_there(
    run: Run, tmp_path: Path, number: signal.Signals
) -> None:
    good = sample("jsonl", "in.jsonl").read_bytes()
    Path("out").mkdir()
    Path("out/out.jsonl").write_text("what was there")
    command = [sys.executable, "-c", "from eventlog.cli import main; main()"]
    arguments = ["convert", "--from", "jsonl", "--to", "jsonl", "-", "out/out.jsonl"]
    with subprocess.Popen(
        [*command, *arguments], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        process.stdin.write(good)
        process.stdin.flush()
        while len(list(Path("out").iterdir())) < 2:  # the unfinished output
            time.sleep(0.02)
        process.send_signal(number)
        assert process.wait() == 130
        assert process.stderr is not None
        assert process.stderr.read().strip() == b"eventlog: stopped: OUT is as it was before"
    assert [one.name for one in Path("out").iterdir()] == ["out.jsonl"]
    assert Path("out/out.jsonl").read_text() == "what was there"


def test_a_reader_that_leaves_ends_the_command_without_a_word(run: Run) -> None:
    Path("in.jsonl").write_bytes(sample("jsonl", "good.jsonl").read_bytes() * 2000)
    command = (
        f"{sys.executable} -c 'from eventlog.cli import main; main()' decode --from jsonl in.jsonl"
    )
    done = subprocess.run(["sh", "-c", f"{command} | head -1"], capture_output=True, check=True)
    assert done.stdout.startswith(b"INSERT item")
    assert done.stderr == b""


# decode


@pytest.mark.promise("option decode--strict", "code error-size_array")
def test_a_listing_continues_after_a_row_that_cannot_be_read(run: Run) -> None:
    path = sample("gbase", "in.cdc")
    path.write_bytes(record(INSERT, 36, b"\xff" * 4)(path.read_bytes()))
    code, out, err = run("decode", "--from", "gbase", "in.cdc")
    lines = out.splitlines()
    fault = next(number for number, one in enumerate(lines) if "!!" in one)
    assert code == 0
    assert lines[fault].startswith("000000cc  !! size_array: column")
    assert "size array: not read" in out
    assert lines[-1].endswith("0 transactions open")
    assert "skipped: in.cdc: at offset 204 (0xcc) of the stream: column" in err
    code, out, err = run("decode", "--strict", "--from", "gbase", "in.cdc")
    assert (code, out.splitlines()[-1]) == (ExitCode.NO, lines[fault])
    assert err.startswith("eventlog: in.cdc: at offset 204 (0xcc) of the stream: column")


@pytest.mark.promise("code error-truncated_stream")
@pytest.mark.parametrize(
    ("format", "place", "break_", "last"),
    [
        ("gbase", "in.cdc", cut, "000004fb  !! truncated_stream: "),
        (
            "gbase",
            "in.cdc",
            lambda data: data + b"garbage and more of it",
            "0000051f  !! framing: ",
        ),
        ("linter", QUEUE, cell(4, "OPER_DATE", "zz"), "    00000060"),
    ],
)
def test_a_damaged_dump_is_listed_up_to_the_fault(
    run: Run, format: str, place: str, break_: Break, last: str
) -> None:
    path = sample(format, place)
    path.write_bytes(break_(path.read_bytes()))
    code, out, err = run("decode", "--from", format, str(path))
    assert code == 1
    assert out.splitlines()[-1].startswith(last)
    assert err.startswith(f"eventlog: {path}")
    assert len(err.splitlines()) == 1
