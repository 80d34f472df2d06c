"""What ``doctor`` says of facts that a test database does not have (spec/event-log.md 11)."""

from __future__ import annotations

from typing import Any

import pytest
from samples import CATALOG

from eventlog.config.effective import Effective, grouped_settings
from eventlog.core.rows.checks import InvalidRow
from eventlog.sql.doctor import (
    Finding,
    HeldSnapshot,
    Limits,
    LogTrigger,
    OpenTransaction,
    TableStorage,
    judge_clock,
    judge_snapshots,
    judge_transactions,
)
from eventlog.sql.doctor.consumers import judge_consumer
from eventlog.sql.doctor.log import judge_numberings, judge_storage
from eventlog.sql.doctor.rows import (
    judge_in_flight,
    judge_invalid_rows,
    judge_keys,
    judge_record_ids,
    judge_statuses,
    logged_objects,
)
from eventlog.sql.doctor.triggers import judge_plan
from eventlog.sql.port.questions import Numbering
from eventlog.sql.readers.consumers import STREAM_OF_SPARK
from eventlog.sql.triggers import Action, TriggerPlan
from eventlog.sql.triggers.declared import looks_secret

LIMITS = Limits()


def open_transaction(**facts: Any) -> OpenTransaction:
    usual = {"pid": 7, "user": "app", "application": "shop", "state": "active", "seconds": 1.0,
             "writes": True, "wrote_log": True}  # fmt: skip
    return OpenTransaction(**{**usual, **facts})


@pytest.mark.promise("code finding-clock")
@pytest.mark.parametrize(
    ("ahead", "uncertainty", "part"),
    [
        (0.5, 0.0, None),
        (-1.9, 0.0, None),
        (5.0, 4.0, None),  # the answer took that long
        (7200.0, 0.01, "2 hours ahead of"),
        (-30.0, 0.01, "30.0 seconds behind"),
    ],
)
def test_clocks_are_compared_as_far_as_the_answer_allows(
    ahead: float, uncertainty: float, part: str | None
) -> None:
    found = list(judge_clock(ahead, uncertainty, LIMITS))
    assert [one.code for one in found] == ([] if part is None else ["clock"])
    assert part is None or part in found[0].text


@pytest.mark.promise("code finding-sequence_cache", "code finding-sequence_order")
@pytest.mark.parametrize(
    ("facts", "codes"),
    [
        (Numbering("s", 1, 1, False), []),
        (Numbering("s", 20, 1, False), [("sequence_cache", "ALTER SEQUENCE s CACHE 1")]),
        (
            Numbering("s", 1, 1, False, "has a cache on each instance", "ALTER SEQUENCE s ORDER"),
            [("sequence_order", "ALTER SEQUENCE s ORDER")],
        ),
    ],
)
def test_a_sequence_is_reported_with_what_brings_its_numbers_into_order(
    facts: Numbering, codes: list[tuple[str, str]]
) -> None:
    found = judge_numberings([facts], "record_id", must_be_known=True)
    assert [(one.code, *one.fix) for one in found] == codes


@pytest.mark.promise("code finding-sequence_unknown")
@pytest.mark.parametrize(("must_be_known", "codes"), [(True, ["sequence_unknown"]), (False, [])])
def test_an_unknown_numbering_is_reported_where_several_sessions_write(
    must_be_known: bool, codes: list[str]
) -> None:
    found = [*judge_numberings([], "rid", must_be_known=must_be_known)]
    assert [one.code for one in found] == codes
    assert all("the column rid has no default" in one.text for one in found)


@pytest.mark.promise("code finding-dead_rows", "code finding-autovacuum_off")
@pytest.mark.parametrize(
    ("facts", "codes"),
    [
        (("log", "l", 1000, 90_000, None, True, 1), []),
        (("log", "l", 10_000_000, 100_000, None, True, 1), []),  # a hundredth of it
        (("log", "l", 100_000, 100_000, "2024-01-01 00:00", True, 1), ["dead_rows"]),
        (("log", "l", 0, 0, None, False, 1), ["autovacuum_off"]),
        (("log", "l", 100, 1_000_000, None, False, 1), ["autovacuum_off", "dead_rows"]),
        (("log", "l", None, None, None, None, 1), []),  # the database reports its size alone
        (("inflight", "l_inflight", 1, 19_999, None, True, 1), []),
        (("inflight", "l_inflight", 1, 20_000, None, True, 1), ["dead_rows"]),
    ],
)
def test_dead_rows_are_reported_when_they_are_many_compared_with_the_live_ones(
    facts: tuple[Any, ...], codes: list[str]
) -> None:
    assert [one.code for one in judge_storage([TableStorage(*facts)], [], LIMITS)] == codes


def snapshot(**facts: Any) -> HeldSnapshot:
    usual = {"kind": "session", "name": None, "pid": 7, "user": "app", "application": "pg_dump",
             "address": "10.0.0.9", "state": "active", "seconds": 7200.0, "transactions": 50_000,
             "xmin": "812", "fix": "SELECT pg_terminate_backend(7)"}  # fmt: skip
    return HeldSnapshot(**{**usual, **facts})


@pytest.mark.promise("code finding-old_snapshot")
@pytest.mark.parametrize(
    ("facts", "part"),
    [
        ({}, "session 7 of app (pg_dump) at 10.0.0.9, active, holds a database snapshot 2 hours old: dead "
             "rows that 50,000 transactions"),
        ({"seconds": 3599.0}, None),
        ({"transactions": 999}, None),  # it moves, or nothing is written
        ({"seconds": None}, None),
        ({"seconds": None, "transactions": 1_000_000}, "a database snapshot of unknown age"),
        ({"kind": "prepared", "name": "it's"}, "prepared transaction \"it's\", holds"),
        ({"kind": "standby", "pid": 9}, "a standby's query, by session 9"),
        (
            {"kind": "slot", "name": "copy", "pid": None, "address": None, "seconds": None,
             "transactions": 1_000_000},
            "replication slot 'copy', which nobody reads, holds",
        ),
    ],
)  # fmt: skip
def test_a_snapshot_that_holds_back_dead_rows_is_reported_from_an_hour_on(
    facts: dict[str, Any], part: str | None
) -> None:
    found = list(judge_snapshots([snapshot(**facts)], LIMITS))
    assert [one.code for one in found] == ([] if part is None else ["old_snapshot"])
    assert part is None or part in found[0].text


def test_dead_rows_name_the_snapshot_that_keeps_them_and_end_it_first() -> None:
    log = TableStorage("log", "l", 0, 1_000_000, None, True, 1)
    (found,) = judge_storage([log], [snapshot()], LIMITS)
    assert found.text.endswith("at 10.0.0.9 prevents their removal")
    assert found.fix == ("SELECT pg_terminate_backend(7)", "VACUUM (ANALYZE) l")


@pytest.mark.parametrize(
    ("facts", "part"),
    [
        ({"seconds": 59.0}, None),
        (
            {"seconds": 300.0},
            "session 7 of app (shop) has had a transaction open for 5 minutes, active: the rows that it "
            "has",
        ),
        ({"seconds": 300.0, "wrote_log": False}, "any rows that it writes to the log"),
        ({"seconds": 300.0, "writes": False, "wrote_log": False}, None),
        ({"seconds": 9000.0, "writes": False, "wrote_log": False}, None),
        ({"seconds": None}, "this user cannot see its age"),
        ({"seconds": None, "wrote_log": False}, None),
    ],
)
def test_open_transactions_are_named_by_what_they_hold_up(
    facts: dict[str, Any], part: str | None
) -> None:
    found = list(judge_transactions([open_transaction(**facts)], LIMITS))
    assert len(found) == (part is not None)
    assert part is None or part in found[0].text


def test_a_prepared_transaction_is_named_with_the_statement_that_ends_it() -> None:
    prepared = open_transaction(pid=None, state="prepared", seconds=86400.0, prepared="it's")
    (found,) = judge_transactions([prepared], LIMITS)
    assert found.fix == ("ROLLBACK PREPARED 'it''s'",)


def test_a_list_that_is_cut_shows_it() -> None:
    whole = [("S", 90, 1, 95), ("x", 10, 7, 50)]
    limits = Limits(sample=100, rows=10, shown=2)
    (found,) = judge_statuses(whole, "log", "status", limits)
    assert "among the newest 100 rows; older rows were not checked" in found.text
    (found,) = judge_statuses(whole, "log", "status", Limits(sample=101))
    assert "newest" not in found.text
    (found,) = judge_record_ids(10, 10, "log", "record_id", limits)
    assert found.text.startswith("at least 10 rows")
    bad = [InvalidRow(number, "bad_value", "wrong") for number in (1, 2, 3, 4)]
    (found,) = judge_invalid_rows(bad, 10, True, limits)
    assert (
        "among the first 10 rows N; the others were not checked: record_id 1, 2 and 2 more;"
        in found.text
    )
    keys = [("usr", f"idu=0{number}", 1, number) for number in (1, 2, 3)]
    (found,) = judge_keys(keys, CATALOG, Limits(sample=3, shown=2))
    assert "(the newest 3 rows were checked)" in found.text
    assert "and 1 more key;" in found.text


@pytest.mark.promise("code finding-rows_failed", "code finding-status_reserved")
def test_padding_is_ignored_and_other_statuses_are_reported() -> None:
    rows = [(status, 1, 1, 1) for status in ("N", "S", "S   ", "W", "N ", "", None, "n", "E ")]
    found = list(judge_statuses(rows, "log", "status", LIMITS))
    assert [one.code for one in found] == ["status_reserved"] * 4 + ["rows_failed"]


@pytest.mark.promise("code finding-in_flight", "code finding-in_flight_left")
@pytest.mark.parametrize(
    ("runs", "seconds", "code", "severity"),
    [
        (True, 10.0, "in_flight", "info"),
        (True, 3600.0, "in_flight", "warning"),
        (False, 10.0, "in_flight_left", "warning"),
    ],
)
def test_in_delivery_lines_are_judged_by_who_could_answer_for_them(
    runs: bool, seconds: float, code: str, severity: str
) -> None:
    (found,) = judge_in_flight(2, 5, seconds, runs, LIMITS)
    assert (found.code, found.severity) == (code, severity)
    assert list(judge_in_flight(0, 0, None, runs, LIMITS)) == []


@pytest.mark.promise(
    "code finding-deferrable_key",
    "code finding-trigger_missing",
    "code finding-trigger_drifted",
    "code finding-trigger_orphaned",
    "code finding-trigger_warning",
    "code finding-not_captured",
)
def test_a_plan_is_reported_action_by_action_and_what_is_disabled_is_not_reported_twice() -> None:
    actions = (
        Action("create", "hr.a", "watched, but not captured yet", ("x",)),
        Action("replace", "hr.b", "trigger t1 is disabled", ("x",)),
        Action("replace", "hr.c", "trigger t1 is disabled; trigger t2 is missing", ("x",)),
        Action("drop", "hr.d", "no longer watched", ("x",)),
        Action("unchanged", "hr.e", "as declared"),
    )
    plan = TriggerPlan(
        actions,
        ("the primary key of f is DEFERRABLE: ...", "pwd looks like a secret"),
        ("TRUNCATE",),
    )
    found = list(
        judge_plan(plan, [LogTrigger(table, "t1", False, "") for table in ("hr.b", "hr.c")])
    )
    assert [(one.code, one.severity) for one in found] == [
        ("trigger_missing", "error"),
        ("trigger_drifted", "error"),
        ("trigger_orphaned", "warning"),
        ("deferrable_key", "warning"),
        ("trigger_warning", "warning"),
        ("not_captured", "info"),
    ]
    assert found[1].text == "triggers of hr.c are not as declared: trigger t2 is missing"


def test_findings_are_values() -> None:
    assert Finding("a", "info", "text") == Finding("a", "info", "text", ())
    assert len({Finding("a", "info", "text"), Finding("a", "info", "text")}) == 1


@pytest.mark.parametrize(
    ("types", "is_told"),
    [
        ((1,), True),
        ((2,), True),
        ((1, 4), False),
        ((4, 1), True),
        ((4, 2), True),  # a change of another session after the 4 of a cascade
        ((4, 5), False),  # what `resync --deletes` writes
        ((4, 8), False),  # sent only if the object is there
    ],
)
def test_an_object_is_there_by_what_its_last_rows_tell_a_receiver(
    types: tuple[int, ...], is_told: bool
) -> None:
    rows = [(number, kind, "usr", "idu=1") for number, kind in enumerate(types)]
    ((told, _),) = logged_objects(rows, CATALOG).values()
    assert told == (["idu=1"] if is_told else [])


@pytest.mark.parametrize(
    ("types", "is_gone"),
    [
        ((4,), True),
        ((1, 4), True),
        ((4, 5), False),  # what `resync --deletes` writes, or the object has come back
        ((4, 8), False),
        ((1,), False),
    ],
)
def test_an_object_is_gone_by_its_last_row_alone(types: tuple[int, ...], is_gone: bool) -> None:
    rows = [(number, kind, "usr", "idu=1") for number, kind in enumerate(types)]
    ((_, gone),) = logged_objects(rows, CATALOG).values()
    assert gone == (["idu=1"] if is_gone else [])


@pytest.mark.parametrize(
    ("sink", "starts"),
    [(STREAM_OF_SPARK, "start its query in Spark"), ("files", "run eventlog publish as lake")],
)
def test_a_consumer_that_waits_is_started_by_what_runs_it(sink: str, starts: str) -> None:
    (finding,) = judge_consumer("lake", 7, 3_600.0, False, Limits(), sink)
    assert finding.fix == (
        f"{starts}; or, if nobody needs the consumer: eventlog consumers drop lake",
    )


@pytest.mark.parametrize(
    "name", ["password_hash", "api_token", "pwd", "usr_salt", "token_hash", "pass_crypt", "hash"]
)
def test_a_name_looks_like_a_secret(name: str) -> None:
    assert looks_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        "content_path_hash",
        "file_hash",
        "password_reset_expire",
        "password_changed_at",
        "token_count",
        "name",
    ],
)
def test_a_name_of_something_about_a_secret_is_none(name: str) -> None:
    assert not looks_secret(name)


def test_settings_of_many_watches_are_one_line_each() -> None:
    settings = [
        one
        for number in range(5)
        for one in (
            Effective(f"watch t{number}", "table", f"t{number}", "eventlog.toml"),
            Effective(f"watch t{number}", "row_style", "remove_all", "eventlog.toml"),
        )
    ]
    settings += [Effective("watch t1", "exclude", ("pwd",), "eventlog.toml")]
    settings += [Effective("database", "url", "x", "eventlog.toml")]
    assert [(one.section, one.key, one.value) for one in grouped_settings(settings)] == [
        ("watch (5)", "table", '"t0", "t1", "t2" and 2 more'),
        ("watch (5)", "row_style", "remove_all"),
        ("watch t1", "exclude", ("pwd",)),
        ("database", "url", "x"),
    ]
