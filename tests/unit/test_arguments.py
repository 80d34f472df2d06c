"""Wrong arguments of the Python API and of ``eventlog.spark`` are refused when a function is called,
by name (docs/reference/api.md).
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eventlog import Publisher, Report, convert, read_changes, write_changes
from eventlog.core.arguments import check_arguments
from eventlog.core.extras import install_command
from eventlog.errors import ConfigError
from eventlog.spark.session import arguments

SQLITE = {"database": {"url": "sqlite:///x.db"}}


async def coroutine(_document: bytes, _events: object) -> None: ...


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: convert(None, "jsonl", "a", "b"),
         "convert: the argument source_format is None; give a text"),
        (lambda: convert("jsonl", "jsonl", None, "b"),
         "convert: the argument source is None; give a path or a URL"),
        (lambda: convert("jsonl", "jsonl", "a", 5),
         "convert: the argument target is a value of type int; give a path or a URL"),
        (lambda: convert("jsonl", "jsonl", "a", "b", "options.toml"),
         "convert: the argument map is a value of type str; give a dict of options"),
        (lambda: convert("jsonl", "jsonl", "a", "b", progress=5),
         "convert: the argument progress is a value of type int; give a function"),
        (lambda: read_changes("jsonl", None),
         "read_changes: the argument source is None; give a path or a URL"),
        (lambda: read_changes("jsonl", "a", report=True),
         "read_changes: the argument report is a value of type bool; give an eventlog.Report"),
        (lambda: read_changes("jsonl", "a", catalog=5),
         "catalog is a value of type int; give a path, or an object of tables"),
        (lambda: read_changes("jsonl", "a", strict=True),
         "the jsonl reader: strict is not known; the known ones are catalog"),
        (lambda: write_changes("jsonl", None, "b"),
         "write_changes: the argument changes is None; give an iterable of eventlog.Change"),
        (lambda: write_changes("jsonl", [], None),
         "write_changes: the argument target is None; give a path or a URL"),
        (lambda: write_changes("jsonl", [], "b", report=5),
         "write_changes: the argument report is a value of type int; give an eventlog.Report"),
        (lambda: Publisher.from_config(5),
         "Publisher.from_config: the argument config is a value of type int; give the path of an "
         "eventlog.toml, or its content as nested dicts"),
        (lambda: Publisher.from_config({5: {"url": 1}}, environ={}), "[5] is not known"),
        (lambda: Publisher.from_config(SQLITE, environ=["A=1"]),
         "the argument environ is a value of type list; give a mapping of variables"),
        (lambda: Publisher.from_config(SQLITE, sink="receive"),
         "the argument sink is a value of type str and cannot be called"),
        (lambda: Publisher.from_config(SQLITE, sink=lambda _document: None),
         "the argument sink cannot be called with a document and its events: too many positional "
         "arguments"),
        (lambda: Publisher.from_config(SQLITE, sink=coroutine),
         "the argument sink is a coroutine; name a function that returns the answer"),
    ],
)  # fmt: skip
def test_a_wrong_argument_of_the_python_api_is_named(
    call: Callable[[], object], message: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        call()
    assert message in str(raised.value)


@pytest.mark.parametrize("format", ["jsonl", "xds", "cloudevents"])
@pytest.mark.parametrize("wrong", [1, {"op": "INSERT"}, None])
def test_an_object_that_is_no_change_is_named_by_its_place(
    tmp_path: Path, format: str, wrong: object
) -> None:
    target = tmp_path / "out"
    with pytest.raises(ConfigError, match=r"write_changes: item 1 of changes is .*; give objects"):
        write_changes(format, [wrong], target)  # type: ignore[list-item]
    assert not target.exists()


def test_changes_may_come_from_a_generator(tmp_path: Path) -> None:
    def none() -> Iterator[Any]:
        yield from ()

    assert write_changes("jsonl", none(), tmp_path / "out", report=Report()).written == 0


# --- eventlog.spark: the session is not started, since the arguments are checked first ------------


SESSION: Any = SimpleNamespace(createDataFrame=None)
COPY: Any = SimpleNamespace(number_done=None, sibling=None)


def live_copy(**changed: Any) -> None:
    from eventlog.spark import live_copy

    given: dict[str, Any] = {
        "spark": SESSION,
        "config": "eventlog.toml",
        "class_name": "item",
        "copy": COPY,
        "checkpoint": "checkpoint",
    }
    live_copy(**{**given, **changed})


def api() -> Any:
    import eventlog.spark

    return eventlog.spark


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: live_copy(copy="lake/item"), "live_copy: the argument copy is a value of type "
         "str; give delta(PATH) or iceberg(CATALOG, TABLE)"),
        (lambda: live_copy(spark=None), "live_copy: the argument spark is None; give a "
         "SparkSession"),
        (lambda: live_copy(config={"database": {}}), "live_copy: the argument config is a value "
         "of type dict; give a path"),
        (lambda: live_copy(class_name=["item"]), "the argument class_name is a value of type list"),
        (lambda: live_copy(checkpoint=None), "live_copy: the argument checkpoint is None"),
        (lambda: live_copy(keep=3), "live_copy: the argument keep is a value of type int; give a "
         "datetime.timedelta, such as timedelta(hours=1)"),
        (lambda: live_copy(trigger={"availableNw": True}), "live_copy: the trigger 'availableNw' "
         "is not known; give one of processingTime, once, availableNow"),
        (lambda: live_copy(trigger="10 seconds"), "live_copy: trigger = '10 seconds'; give a dict "
         "with one entry"),
        (lambda: live_copy(trigger={}), "live_copy: trigger = {}; give a dict with one entry"),
        (lambda: live_copy(trigger={"processingTime": 10}), "live_copy: the trigger "
         "processingTime = 10; give a text such as '10 seconds'"),
        (lambda: live_copy(trigger={"availableNow": 1}), "the trigger availableNow = 1; give True"),
        (lambda: api().as_of(SESSION, COPY, "2026-11-23"), "as_of: the argument time is a value of "
         "type str; give a datetime.datetime with its zone, such as"),
        (lambda: api().as_of(SESSION, "lake/item", datetime.now(UTC)),
         "as_of: the argument copy is a value of type str"),
        (lambda: api().history(None, COPY), "history: the argument spark is None"),
        (lambda: api().history(SESSION, None), "history: the argument copy is None"),
        (lambda: api().verify("eventlog.toml", "item", "lake/item"),
         "verify: the argument copy is a value of type str"),
        (lambda: api().verify_history("eventlog.toml", "item", COPY, options={}),
         "verify_history: the argument options is a value of type dict; give "
         "eventlog.verify.verification.VerifyOptions"),
        (lambda: api().delta(None), "delta: the argument uri is None; give a path"),
        (lambda: api().iceberg(None, "item"), "iceberg: the argument catalog is None"),
        (lambda: api().iceberg("shop", ["item"]), "iceberg: the argument table is a value of type "
         "list; give a text"),
        (lambda: api().read_inputs(SESSION, "gbase", None), "read_inputs: the argument source "
         "is None"),
        (lambda: api().read_inputs(SESSION, "gbase", "a", "options.toml"),
         "read_inputs: the argument options is a value of type str; give a dict of options"),
        (lambda: api().read_inputs(SESSION, "gbase", "a", columns=["id"]),
         "the argument columns is a value of type list; give a StructType of the table's columns"),
        (lambda: api().read_messages(SESSION, None), "read_messages: the argument source is None"),
        (lambda: api().write_messages([1], "a"), "write_messages: the argument changes is a value "
         "of type list; give a DataFrame"),
        (lambda: api().find_change_tables(5), "find_change_tables: the argument source is a value"),
        (lambda: api().read_rows(SESSION, "app.item"), "read_rows: the argument table is a value "
         "of type str; give one of the tables that find_change_tables returns"),
        (lambda: api().read_change_table(SESSION, 5), "read_change_table: the argument source is"),
        (lambda: api().live_view([1], [1]), "live_view: the argument base is a value of type list"),
        (lambda: api().run_backlog("eventlog.toml", api().BacklogRequest("out")),
         "run_backlog: the argument config is a value of type str; give a configuration: "
         "eventlog.config.load.load"),
        (lambda: api().mark_backlog({}, "out"), "mark_backlog: the argument config is a value of"),
        (lambda: api().convert_inputs("gbase", "jsonl", None, "out"),
         "convert_inputs: the argument source is None"),
        (lambda: api().register("spark://here"), "register: the argument spark is a value of type "
         "str; give a SparkSession"),
    ],
)  # fmt: skip
def test_a_wrong_argument_of_the_spark_api_is_named_at_the_call(
    call: Callable[[], object], message: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        call()
    assert message in str(raised.value)


def test_a_place_may_be_a_path(tmp_path: Path) -> None:
    """``eventlog.convert`` takes paths as ``read_changes`` does; Spark is not needed to see it."""
    write_changes("jsonl", [], tmp_path / "in")
    assert convert("jsonl", "jsonl", tmp_path / "in", tmp_path / "out").read == 0
    with pytest.raises(ConfigError, match="is inside IN"):
        api().convert_inputs("gbase", "jsonl", tmp_path, tmp_path / "out")


def test_a_frame_that_lacks_columns_is_refused_with_their_names() -> None:
    frame: Any = SimpleNamespace(columns=["id", "name"])
    with pytest.raises(ConfigError, match="changes has no column op, key; its columns are id, na"):
        arguments.check_columns("write_messages", "changes", frame, ["op", "key"])


@pytest.mark.parametrize(
    ("key", "is_right"),
    [("id", False), (None, True), (["id"], True), (("id",), True), ([1], False), (5, False)],
)
def test_the_key_of_a_view_is_a_list_of_names(key: object, is_right: bool) -> None:
    assert arguments.TEXTS.holds(key) is is_right


def test_a_span_of_time_is_right() -> None:
    check_arguments("live_copy", keep=(timedelta(hours=1), arguments.SPAN))


# --- pandas, which PySpark needs on the driver ----------------------------------------------------


@pytest.mark.parametrize(
    ("installed", "message"),
    [
        (None, "pandas is not installed, which PySpark needs: "
         f"{install_command('spark')}; or install pandas 2.2 or later, below 3"),
        ("2.1.4", f"pandas 2.1.4 is too old for PySpark: {install_command('spark')}"),
        ("2.3.0", None),
        ("3.1.1", None),
    ],
)  # fmt: skip
def test_pandas_that_pyspark_cannot_use_is_named_before_a_job_starts(
    monkeypatch: pytest.MonkeyPatch, installed: str | None, message: str | None
) -> None:
    def version(name: str) -> str:
        if installed is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return installed

    monkeypatch.setattr(arguments, "version", version)
    if message is None:
        arguments.check_pandas()
        return
    with pytest.raises(ConfigError) as raised:
        api().read_inputs(SESSION, "gbase", "a")
    assert message in str(raised.value)
