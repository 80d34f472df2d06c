"""`eventlog explain CODE`: what a code means and what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eventlog import cli
from eventlog.cli.inspect.explain_code import code_entries, is_code
from eventlog.error_codes import ERRORS
from eventlog.publisher.context.conditions import KINDS
from eventlog.sql.doctor.codes import FINDINGS

ROOT = Path(__file__).parents[2]
ENTRIES = code_entries()


@pytest.fixture(autouse=True)
def without_a_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_every_code_has_an_entry() -> None:
    of_groups = {code for group in (*ERRORS, *FINDINGS) for code in group.codes}
    assert ENTRIES.keys() == of_groups | KINDS.keys()


def test_an_entry_has_more_than_the_name_of_its_code() -> None:
    for code, entries in ENTRIES.items():
        for entry in entries:
            for label, text in entry.parts():
                assert text.replace("`", "") != code, (code, label)
            assert entry.happened.endswith("."), code
            assert entry.fix.endswith("."), code
            assert (ROOT / entry.page).exists(), code


def test_it_prints_what_happened_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["explain", "another_publisher"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "another_publisher is an error: Publishing",
        "What happened: Another publisher, or a Spark job that marks rows, has the lock of this "
        "log. A log has one publisher at a time.",
        "What to do: Stop the other publisher, or wait for it with `[publisher] standby = true` "
        "(without `--once`); `eventlog status` shows whether a publisher runs.",
        "Where it appears: In log lines of the publisher, and the line that ends it.",
        "Commands: `publish`, `doctor --receiver`",
        "Exit code: 1.",
        "Read on: docs/guides/publish.md",
    ]


def test_a_code_with_two_meanings_is_explained_for_both(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["explain", "invalid_rows"]) == 0
    out = capsys.readouterr().out
    assert "invalid_rows is a finding of doctor (warning): Rows and the queue\n" in out
    assert "\n\ninvalid_rows is a condition of health (warning)\n" in out


def test_a_program_gets_the_same_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["explain", "fatal_answer", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["code"] == "fatal_answer"
    (entry,) = printed["entries"]
    assert entry["happened"] == (
        "The receiver answered fatal. The publisher marked the event's rows F and stopped."
    )
    assert entry["exit_code"] == "3."


def test_capitals_and_hyphens_do_not_matter(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["explain", "BAD-VALUE"]) == 0
    assert capsys.readouterr().out.startswith("bad_value is an error")


def test_an_unknown_code_gets_the_nearest_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["explain", "reciever_unavailable"]) == 2
    assert "the nearest one is receiver_unavailable" in capsys.readouterr().err
    assert cli.run(["explain", "zzz"]) == 2
    assert "the code stands in brackets at the end of a message" in capsys.readouterr().err


def test_a_code_has_no_consumer_and_no_source(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["explain", "bad_value", "--consumer", "mail"]) == 2
    assert (
        "a code is explained without --consumer, --from and --show-values"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize("text", ["4711", "1:1", "4.2", "snapshot.20261125T091500.usr.idu=7"])
def test_a_record_id_or_an_event_id_is_no_code(text: str) -> None:
    assert not is_code(text)
