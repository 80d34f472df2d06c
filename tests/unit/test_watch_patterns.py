"""Tables that patterns of a [[watch]] mean, and what no pattern takes
(docs/guides/choose-tables.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import eventlog.alembic
from eventlog.core.catalog import Column, Database, ForeignKey, Table
from eventlog.core.values import parse_type
from eventlog.errors import ConfigError
from eventlog.model import LOG_COLUMNS
from eventlog.sql.log_table import LogTable
from eventlog.sql.triggers.watch import TableChoice, choose_tables, internal_tables

LOG = LogTable("hr", "eventlog", LOG_COLUMNS)


def table(name: str, columns: str, key: str = "", owner: str = "", kind: str = "table") -> Table:
    """``owner``: ``column table`` of the first foreign key, to a table whose key is ``id``."""
    foreign = (ForeignKey((owner.split()[0],), owner.split()[1], ("id",)),) if owner else ()
    typed = tuple(Column(one, parse_type("integer")) for one in columns.split())
    return Table(name, kind, typed, tuple(key.split()), foreign)  # type: ignore[arg-type]


USR = table("usr", "id fname", "id")
PHONE = table("usr_phone", "usr phoneno", "usr phoneno", "usr usr")
GRP = table("grp", "id name", "id")


def database(*tables: Table, partitions: dict[str, str] | None = None) -> Database:
    return Database("postgresql", "hr", tables, partitions or {})


def choose(
    tables: Sequence[Table],
    *patterns: str,
    without: Sequence[str] = (),
    watched: Sequence[str] = (),
) -> TableChoice:
    there = database(*tables)
    return choose_tables(
        there, patterns, without, watched=watched, ignore=internal_tables(there, LOG)
    )


def refused(
    tables: Sequence[Table], *patterns: str, without: Sequence[str] = ()
) -> tuple[str, ...]:
    return tuple(map(str, choose(tables, *patterns, without=without).refused.values()))


@pytest.mark.parametrize(
    ("patterns", "without", "tables"),
    [
        (["*"], [], ("grp", "usr")),
        (["u*"], [], ("usr",)),
        (["?rp"], [], ("grp",)),
        (["[a-h]*"], [], ("grp",)),
        (["U*"], [], ("usr",)),
        (["*"], ["g*"], ("usr",)),
        (["*"], ["GRP"], ("usr",)),
        (["grp", "u*"], ["nothing_like_it_*"], ("grp", "usr")),
    ],
)
def test_patterns_match_names_exactly_else_without_case(
    patterns: list[str], without: list[str], tables: tuple[str, ...]
) -> None:
    assert choose([USR, GRP, PHONE], *patterns, without=without).tables == tables


def test_a_pattern_that_matches_exactly_takes_no_other_case() -> None:
    assert choose([USR, table("USR_OLD", "id", "id")], "u*").tables == ("usr",)


def test_a_name_with_wildcards_is_a_name_if_there_is_such_a_table() -> None:
    assert choose([table("a*", "id", "id"), table("ab", "id", "id")], "a*").tables == ("a*",)


def test_child_tables_stay_with_their_class() -> None:
    assert choose([USR, PHONE], "*").tables == ("usr",)
    assert choose([USR, PHONE], "usr_*").tables == ("usr_phone",)  # its owner is not a class here
    assert choose([USR, PHONE], "*", "usr_phone").tables == (
        "usr",
        "usr_phone",
    )  # named, it is a class


def test_a_child_table_of_a_class_that_another_watch_names_is_no_class() -> None:
    (error,) = choose([USR, PHONE], "usr_*", watched=["usr"]).refused.values()
    assert str(error).startswith("usr_* selects no table: ")


def test_a_table_that_refers_to_itself_or_in_a_circle_is_still_captured() -> None:
    assert choose([table("emp", "id boss", "id", "boss emp")], "*").tables == ("emp",)
    circle = [table("a", "id b", "id", "b b"), table("b", "id a", "id", "a a")]
    assert choose(circle, "*").tables == ("a",)


def test_the_child_of_a_child_table_is_a_separate_class() -> None:
    chain = [
        table("a", "id", "id"),
        table("b", "id a", "id", "a a"),
        table("c", "id b", "id", "b b"),
    ]
    assert choose(chain, "*").tables == ("a", "c")


def test_an_excluded_child_table_is_not_watched_with_its_class_either() -> None:
    assert choose([USR, PHONE], "*", without=["usr_ph*"]) == TableChoice(
        ("usr",), {"usr": ("usr_phone.phoneno",)}
    )
    assert choose([USR, PHONE], "*", without=["usr_phone"]).left_out == {
        "usr": ("usr_phone.phoneno",)
    }


def test_views_are_matched_by_no_pattern() -> None:
    view = table("view_usr", "pk_id sv_fname", kind="view")
    assert choose([USR, view], "*").tables == ("usr",)
    assert refused([USR, view], "usr", "view_usr")[0].startswith("'view_usr' is a view")


def test_tables_without_a_key_are_reported_if_a_pattern_matches_and_refused_if_they_are_named() -> (
    None
):
    plain = table("plain", "a b")
    assert choose([USR, plain], "*") == TableChoice(("usr",), {}, ("plain",))
    assert refused([USR, plain], "plain", "usr") == (
        "'plain' cannot be a class: it has no primary key",
    )


def test_neither_this_log_nor_another_one_is_matched() -> None:
    others = [
        table(name, columns, columns.split()[0])
        for log in ("eventlog", "second")
        for name, columns in (
            (log, " ".join(LOG_COLUMNS)),
            (f"{log}_error", "record_id error_time code message"),
            (f"{log}_inflight", "entry_no owner kind started content"),
            (f"{log}_state", "entry_no owner kind started content"),
            (f"{log}_delivery", "delivery_no"),
            (f"{log}_resync", "digest class_name selection started position rows_written"),
            (f"{log}_version", "version_num"),
        )
    ]
    others += [
        table(
            "theirs", "id status kind", "id"
        ),  # somebody else's log, known by its internal tables
        table("theirs_inflight", "entry_no owner kind started content", "entry_no"),
        table("eventlog_position", "source token delivery_no saved", "source"),
        table("eventlog_position_error", "source event_id error_time code message content"),
        table("alembic_version", "version_num", "version_num"),
    ]
    assert choose([USR, *others], "*") == TableChoice(("usr",))
    assert "an internal table of eventlog" in refused([USR, *others], "usr", "second")[0]


def test_a_table_of_the_application_is_not_taken_for_ours_by_its_name() -> None:
    job = [
        table("job", "id", "id"),
        table("job_error", "id job", "id"),
        table("job_version", "id", "id"),
    ]
    assert choose(job, "*").tables == ("job", "job_error", "job_version")


def test_everything_that_is_wrong_is_reported_at_once() -> None:
    there = database(USR, GRP, partitions={"parts_1": "parts"})
    choice = choose_tables(there, ["nobody", "x*", "hr.*", "parts_1"], ["nothing"])
    assert tuple(map(str, choice.refused.values())) == (
        "there is no table or view 'nobody' in schema hr, the only schema that the log watches; correct the name in "
        "the configuration, or remove its [[watch]] if the table was dropped",
        "no table of schema hr matches 'x*'",
        "no table of schema hr matches 'hr.*'; patterns match names without the schema",
        "'parts_1' is a partition of parts. Name parts, which covers the rows of all its "
        "partitions",
        "there is no table or view 'nothing' in schema hr, the only schema that the log watches; correct the name in "
        "the configuration, or remove its [[watch]] if the table was dropped",
    )


def test_patterns_that_leave_no_table_are_refused() -> None:
    assert refused([USR], "*", without=["usr"])[0].startswith("* selects no table: ")


def test_a_migration_names_its_tables(tmp_path: Path) -> None:
    (tmp_path / "eventlog.toml").write_text('[[watch]]\ntables = ["*"]\n')
    with pytest.raises(ConfigError, match=r"watch \*: a migration cannot use patterns"):
        eventlog.alembic.options(tmp_path / "eventlog.toml")
