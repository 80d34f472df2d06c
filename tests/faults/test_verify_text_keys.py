"""``eventlog verify`` of classes whose keys are texts: they are compared by ranges of keys if source
and target sort them alike, and the result never depends on it (spec/verify.md 1.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import verified
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from publishers import install
from shared import fetch, in_ci, url_of
from verified import publish_once, run, to_files

from eventlog.config.load import load
from eventlog.core import table_key
from eventlog.core.catalog import ObjectClass
from eventlog.errors import DatabaseError
from eventlog.sql.port.log_operations import KeyValues, RangeReader
from eventlog.verify import VerifyOptions, VerifyReport, verify
from eventlog.verify.targets.table import TableTarget
from eventlog.verify.verification import Verification

NewDatabase = Callable[[], AbstractContextManager[sa.Engine]]
Objects = Mapping[tuple[str, int], str | None]

COLLATIONS = ["C", "pg_c_utf8", "C.utf8", "und-x-icu", "en-US-x-icu"]
# What quotes need, what languages sort in different places, and texts that begin with others.
PIECES = ["", "a", "A", "b", "ä", "Ä", "z", "Z", "ß", "_", " ", '"', "\\", "+", "=", ",", "-", "%"]
PIECES += ["\t", "~", "é", "e\u0301", "\ud7ff", "\uffff", "\U0001f600", "1", "10", "2"]
codes = st.lists(st.sampled_from(PIECES), max_size=3).map("".join)
objects = st.dictionaries(
    st.tuples(codes, st.integers(-2, 2)), st.sampled_from([None, "x", "y"]), max_size=12
)


@contextmanager
def databases(new_database: NewDatabase, *collations: str) -> Iterator[list[sa.Engine]]:
    """A database for each collation, with the table ``part`` whose key is a text of the collation
    and a number.
    """
    with ExitStack() as made:
        engines = [made.enter_context(new_database()) for _ in collations]
        for engine, collation in zip(engines, collations, strict=True):
            if not fetch(engine, f"SELECT 1 FROM pg_collation WHERE collname = '{collation}'"):
                pytest.skip(f"the server has no collation {collation}")
            run(
                engine,
                f'CREATE TABLE part (code varchar(40) COLLATE "{collation}", no integer, '
                "name text, PRIMARY KEY (code, no))",
            )
        yield engines


def document(engine: sa.Engine) -> dict[str, Any]:
    return verified.document(engine) | {"watch": [{"table": "part"}]}


def put(engine: sa.Engine, objects: Objects) -> None:
    """Replace the rows of ``part``; its triggers do not see it."""
    with engine.begin() as conn:
        conn.exec_driver_sql("SET LOCAL session_replication_role = replica")
        conn.exec_driver_sql("DELETE FROM part")
        for (code, no), name in objects.items():
            conn.exec_driver_sql("INSERT INTO part VALUES (%s, %s, %s)", (code, no, name))


def compare(source: sa.Engine, copy: sa.Engine, size: int) -> VerifyReport:
    options = VerifyOptions(wait=0, batch=size)
    return verify(document(source), url_of(copy), environ={}, options=options)


def found(report: VerifyReport) -> list[tuple[str, str]]:
    return sorted((one.kind.value, one.key) for one in report.differences)


def expected(here: Objects, there: Objects) -> list[tuple[str, str]]:
    kinds = {}
    for key in here.keys() | there.keys():
        if key not in there:
            kinds[key] = "missing"
        elif key not in here:
            kinds[key] = "surplus"
        elif here[key] != there[key]:
            kinds[key] = "value"
    return sorted(
        (kind, table_key.key_text([("code", code), ("no", str(no))]))
        for (code, no), kind in kinds.items()
    )


EXAMPLES = [4, pytest.param(100, marks=pytest.mark.night)]
"""How many tables a test compares besides those that it names: few and always the same in CI."""


def check_any_objects(source: sa.Engine, copy: sa.Engine, examples: int) -> None:
    """Compare tables with any objects, by ranges of any size."""
    install(load(document(source), {}))

    @settings(
        max_examples=examples,
        derandomize=examples < 10,
        deadline=None,
        suppress_health_check=[*HealthCheck],
    )
    @given(here=objects, changes=objects, size=st.sampled_from([1, 2, 3, 1000]))
    @example(here={("a", n): "x" for n in range(6)}, changes={}, size=2)
    @example(here={}, changes={(code, 0): "x" for code in PIECES}, size=3)
    @example(
        here={(code, 0): "x" for code in PIECES}, changes={("b", 0): "y", ("", 1): "x"}, size=3
    )
    def check(here: Objects, changes: Objects, size: int) -> None:
        # An object that the changes have is changed, deleted or inserted.
        there = {
            key: name for key, name in (here | changes).items() if changes.get(key, "") is not None
        }
        put(source, here)
        put(copy, there)
        report = compare(source, copy, size)
        assert found(report) == expected(here, there)
        assert report.classes["part"].equal == sum(
            1 for key in here if key in there and here[key] == there[key]
        )

    check()


def refuse_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail where a class is not compared by ranges."""

    def walk(*args: Any) -> None:
        raise AssertionError("the class was compared by its keys")

    monkeypatch.setattr(Verification, "walk", walk)


@pytest.mark.parametrize("examples", EXAMPLES)
@pytest.mark.parametrize("collation", in_ci(COLLATIONS, "C", "en-US-x-icu"))
def test_texts_of_equal_collations_are_compared_by_ranges(
    new_database: NewDatabase, monkeypatch: pytest.MonkeyPatch, collation: str, examples: int
) -> None:
    refuse_keys(monkeypatch)
    with databases(new_database, collation, collation) as (source, copy):
        check_any_objects(source, copy, examples)


def test_texts_of_all_collations_that_sort_bytes_are_compared_by_ranges(
    new_database: NewDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_keys(monkeypatch)
    with databases(new_database, "C", "POSIX") as (source, copy):
        put(copy, {("ä", 1): None})
        install(load(document(source), {}))
        assert found(compare(source, copy, 10)) == [("surplus", "code=ä+no=1")]


@pytest.mark.parametrize("examples", EXAMPLES)
@pytest.mark.parametrize(
    "collations",
    [
        ("C", "C.utf8"),
        ("C", "en-US-x-icu"),
        pytest.param(("en-US-x-icu", "C"), marks=pytest.mark.night),
        ("en-US-x-icu", "de-AT-x-icu"),
    ],
)
def test_texts_of_different_collations_give_the_same_result(
    new_database: NewDatabase, collations: tuple[str, str], examples: int
) -> None:
    with databases(new_database, *collations) as (source, copy):
        check_any_objects(source, copy, examples)


def test_a_number_that_no_key_of_the_source_can_have_is_surplus(new_database: NewDatabase) -> None:
    with databases(new_database, "C", "C.utf8") as (source, copy):
        install(load(document(source), {}))
        run(copy, "ALTER TABLE part ALTER no TYPE bigint")
        numbers = [1 << 31, -(1 << 31) - 1, (1 << 31) - 1]
        put(copy, {("a", number): "x" for number in numbers})
        put(source, {("a", numbers[-1]): "x"})
        assert found(compare(source, copy, 10)) == [
            ("surplus", f"code=a+no={number}") for number in (numbers[1], numbers[0])
        ]


def test_a_collation_that_ignores_case_gives_the_same_result(new_database: NewDatabase) -> None:
    with databases(new_database, "C", "C") as (source, copy):
        if not fetch(source, "SELECT 1 FROM pg_collation WHERE collname = 'und-x-icu'"):
            pytest.skip("the server has no ICU")
        for engine in (source, copy):
            run(
                engine,
                "CREATE COLLATION caseless (provider = icu, locale = 'und-u-ks-level2', "
                "deterministic = false)",
                "ALTER TABLE part ALTER code TYPE text COLLATE caseless",
            )
        install(load(document(source), {}))
        put(source, {("a", 1): "x", ("B", 1): "x", ("c", 1): "x"})
        put(copy, {("A", 1): "x", ("B", 1): "x", ("c", 1): "y"})
        assert found(compare(source, copy, 1)) == [
            ("missing", "code=a+no=1"),
            ("surplus", "code=A+no=1"),
            ("value", "code=c+no=1"),
        ]


PROVIDERS = ["LOCALE 'C'", "LOCALE_PROVIDER icu ICU_LOCALE 'en-US' LOCALE 'C'"]
PROVIDERS += ["LOCALE_PROVIDER builtin BUILTIN_LOCALE 'C.UTF-8' LOCALE 'C'"]


@pytest.mark.parametrize("examples", EXAMPLES)
@pytest.mark.parametrize("provider", in_ci(PROVIDERS, *PROVIDERS[:2]))
def test_texts_of_the_databases_own_collation_are_compared_by_ranges(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, provider: str, examples: int
) -> None:
    admin = sa.create_engine(postgres_url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    names = ["eventlog_test_text_source", "eventlog_test_text_copy"]
    refuse_keys(monkeypatch)

    @contextmanager
    def made() -> Iterator[sa.Engine]:
        name = names.pop()
        with admin.connect() as conn:
            try:
                conn.exec_driver_sql(
                    f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' {provider}"
                )
            except sa.exc.DBAPIError as error:
                pytest.skip(f"the server has no such collation: {error.orig}")
        engine = sa.create_engine(sa.make_url(postgres_url).set(database=name))
        try:
            yield engine
        finally:
            engine.dispose()
            with admin.connect() as conn:
                conn.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")

    with databases(made, "default", "default") as (source, copy):
        check_any_objects(source, copy, examples)


def test_a_target_that_sorts_keys_differently_under_the_same_collation_is_an_error(
    new_database: NewDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as an index that is older than the version of its collation."""

    def sorted_backwards(target: TableTarget, cls: ObjectClass) -> RangeReader | None:
        reader = range_reader(target, cls)
        assert reader is not None

        def read(behind: KeyValues | None, last: KeyValues | None, limit: int) -> list[Any]:
            rows = reversed(reader.read(None, None, 1000))
            return [row for row in rows if behind is None or row[:2] < behind][:limit]

        return reader._replace(read=read)

    range_reader = TableTarget.range_reader
    monkeypatch.setattr(TableTarget, "range_reader", sorted_backwards)
    with databases(new_database, "C", "C") as (source, copy):
        install(load(document(source), {}))
        for engine in (source, copy):
            put(engine, {(code, 0): "x" for code in "abcdef"})
        with pytest.raises(DatabaseError, match="sort the keys of class part differently"):
            compare(source, copy, 2)


# --- files ----------------------------------------------------------------------------------------


def test_files_are_compared_by_ranges_of_texts_that_the_source_sorts_by_bytes(
    new_database: NewDatabase, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    refuse_keys(monkeypatch)
    with databases(new_database, "C") as (source,):
        config = to_files(source, tmp_path / "documents") | {"watch": [{"table": "part"}]}
        install(load(config, {}))
        sent = {(code, no): "x" for code in PIECES for no in (-1, 2) if code.isprintable() and code}
        run(source, "ALTER TABLE part ALTER name SET NOT NULL")
        with source.begin() as conn:
            for (code, no), name in sent.items():
                conn.exec_driver_sql("INSERT INTO part VALUES (%s, %s, %s)", (code, no, name))
        publish_once(config)
        now = {key: "y" if key == ("ä", 2) else name for key, name in sent.items()}
        del now["a", 2], now["z", -1]
        now |= {("a", 1): "x", ("aa", -1): "x", ('"', 3): "x", ("\U0001f600", 3): "x"}
        put(source, now)
        for size in (1, 2, 5, 1000):
            options = VerifyOptions(wait=0, batch=size)
            assert found(verify(config, environ={}, options=options)) == expected(now, sent)


@pytest.mark.parametrize("collation", ["en-US-x-icu", "default"])
def test_files_give_the_same_result_for_texts_of_other_collations(
    new_database: NewDatabase, tmp_path: Path, collation: str
) -> None:
    with databases(new_database, collation) as (source,):
        config = to_files(source, tmp_path / "documents") | {"watch": [{"table": "part"}]}
        install(load(config, {}))
        run(source, "INSERT INTO part VALUES ('b', 1, 'x'), ('A', 1, 'x'), ('\u00e4', 1, 'x')")
        publish_once(config)
        put(source, {("b", 1): "y", ("\u00e4", 1): "x", ("B", 1): "x"})
        options = VerifyOptions(wait=0, batch=1)
        assert found(verify(config, environ={}, options=options)) == [
            ("missing", "code=B+no=1"),
            ("surplus", "code=A+no=1"),
            ("value", "code=b+no=1"),
        ]
