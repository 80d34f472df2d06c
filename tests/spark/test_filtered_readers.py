"""What Spark reads of a log with a filter is what its publisher sends (spec/event-log.md 15.2)."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from backlog_job import (
    SCHEMA,
    config_of,
    convert,
    copy,
    documents_of,
    events_of,
    fetch,
    leave_in_flight,
    log_rows,
    publish,
    random_rows,
)
from shared import execute
from stream_engine import Engine, reader_of, rows_of

from eventlog.cli.context import changing_log
from eventlog.config.load import Config, load
from eventlog.config.settings import FilterSettings, MaskSettings, WatchSettings
from eventlog.errors import ConfigError, EventlogError
from eventlog.publisher.declared.configured_classes import filters_of
from eventlog.spark.changes.change_log import close_cached_connection
from eventlog.spark.changes.changes import ChangesDataSource
from eventlog.spark.copies.copy_source import ClassSource
from eventlog.sql.log.accepted_filters import accept_filters

WHERE: Final = "age % 2 = 0 and fname like 'f%'"


def filtered(config: Config, *filters: FilterSettings) -> Config:
    config = replace(config, filters=filters or (FilterSettings("usr", WHERE),))
    with changing_log(config) as opened:
        accept_filters(opened, None, filters_of(config))
        opened.commit()
    return config


@pytest.mark.parametrize("changes", [True, False])
def test_a_job_and_the_publisher_send_the_same_events_byte_for_byte(
    log: sa.Engine, tmp_path: Path, changes: bool
) -> None:
    rows = random_rows(1_500, seed=4)
    log_rows(log, [next(rows) for _ in range(300)])
    config = filtered(config_of(log), FilterSettings("usr", WHERE, changes))
    leave_in_flight(config, documents=3)
    log_rows(log, rows)
    copy(config, tmp_path / "out", partition_rows=400)
    sent = publish(config)
    assert list(events_of(documents_of(tmp_path / "out"))) == sent
    kinds = {event.partition(" ")[0] for event in sent if 'class-name="usr"' in event}
    assert kinds >= {"<delete", "<modify"}


def test_change_tables_have_what_exists_for_the_reader(log: sa.Engine, tmp_path: Path) -> None:
    log_rows(log, random_rows(900, seed=6))
    config = filtered(config_of(log), FilterSettings("grp", "idg % 2 = 0"))
    copy(config, tmp_path / "out", format="qlik-change-table")
    files = [one for one in (tmp_path / "out").rglob("*.parquet") if "grp__ct" in str(one)]
    table = pa.concat_tables(map(pq.read_table, files)).sort_by("header__change_seq")
    names = ("idg", "header__change_oper")
    last = dict(zip(*(table.column(name).to_pylist() for name in names), strict=True))
    assert set(last.values()) == {"I", "D"}
    sql = f"SELECT idg FROM {SCHEMA}.grp WHERE idg %% 2 = 0"
    there = {idg for (idg,) in fetch(log, sql)}
    assert {key for key, letter in last.items() if letter == "I"} <= there


@pytest.fixture
def file(log_alone: sa.Engine, tmp_path: Path) -> Iterator[str]:
    yield str(write_file(log_alone, tmp_path, WHERE))
    close_cached_connection()


def write_file(log: sa.Engine, directory: Path, where: str | None) -> Path:
    url = directory / "url"
    url.write_text(log.url.render_as_string(hide_password=False))
    config = directory / "eventlog.toml"
    rule = "" if where is None else f'[[filter]]\ntable = "usr"\nwhere = "{where}"\n'
    config.write_text(
        f'[database]\nschema_name = "{SCHEMA}"\nurl_file = "{url}"\n[publisher]\n'
        f'driver_user = "publisher"\n{rule}'
    )
    return config


def read_all(**options: object) -> list[dict[str, Any]]:
    """What ``spark.read`` gives, without Java."""
    source = ChangesDataSource({name: str(value) for name, value in options.items()})
    reader = source.reader(source.schema())
    return [row for partition in reader.partitions() for row in rows_of(reader.read(partition))]


def test_data_frames_have_what_exists_for_the_reader(log_alone: sa.Engine, file: str) -> None:
    log_rows(log_alone, random_rows(900, seed=6))
    rows = read_all(config=file, **{"class": "usr"})
    last = {dict(row["key"])["idu"]: row["operation"] for row in rows}
    there = {
        str(idu)
        for (idu,) in fetch(
            log_alone, f"SELECT idu FROM {SCHEMA}.usr WHERE {WHERE}".replace("%", "%%")
        )
    }
    kept = {key for key, operation in last.items() if operation != "delete"}
    assert kept
    assert kept <= there
    assert not {key for key, operation in last.items() if operation == "add"} - there


def test_a_checkpoint_of_another_filter_is_refused(
    log_alone: sa.Engine, file: str, tmp_path: Path
) -> None:
    log_rows(log_alone, random_rows(50, seed=6))
    reader = reader_of(config=file)
    assert Engine(reader, tmp_path / "checkpoint").rest()
    reader.stop()
    close_cached_connection()
    write_file(log_alone, tmp_path, "age = 1")
    with pytest.raises(ConfigError, match=r"other \[\[filter\]\]"):
        Engine(reader_of(config=file), tmp_path / "checkpoint").rest()


def test_a_new_reader_takes_no_condition_that_is_not_one_expression(
    log_alone: sa.Engine, tmp_path: Path
) -> None:
    file = write_file(log_alone, tmp_path, "age = 1) OR (age = 2")
    with pytest.raises(ConfigError, match=r"\[\[filter\]\] usr: where = .* is not one condition"):
        read_all(config=file, **{"class": "usr"})


def test_the_load_of_a_live_copy_has_what_exists_for_the_reader(
    log_alone: sa.Engine, file: str
) -> None:
    log_rows(log_alone, random_rows(50, seed=6))
    source = ClassSource.of(load(Path(file), {}), "usr")
    loaded = {row["idu"] for batch in source.objects() for row in batch.to_pylist()}
    sql = f"SELECT idu FROM {SCHEMA}.usr WHERE {WHERE}".replace("%", "%%")
    assert loaded == {idu for (idu,) in fetch(log_alone, sql)}


def test_objects_of_a_view_exist_by_its_columns(log_alone: sa.Engine) -> None:
    log_rows(log_alone, random_rows(900, seed=7))
    rule = FilterSettings("view_emp", "pk_empno % 2 = 0 AND sv_fname LIKE 'e%'")
    sent = publish(filtered(config_of(log_alone), rule))
    kinds: dict[str, set[int]] = {}
    for event in sent:
        if 'class-name="view_emp"' in event:
            key = int(event.partition("pk_empno=")[2].partition(",")[0])
            kinds.setdefault(event.partition(" ")[0], set()).add(key)
    there, absent = range(2, 101, 2), range(1, 101, 2)
    assert kinds["<modify"] | kinds.get("<add", set()) <= set(there)
    assert kinds["<delete"] <= set(absent)


def test_a_job_and_the_publisher_delete_what_is_not_in_a_view(
    log: sa.Engine, tmp_path: Path
) -> None:
    """A third of the employees has left the view, and a few have no row any more."""
    with log.begin() as conn:
        conn.exec_driver_sql(
            f"CREATE OR REPLACE VIEW {SCHEMA}.view_emp AS SELECT empno AS pk_empno, fname AS "
            f"sv_fname, phone AS mv_phone FROM {SCHEMA}.emp WHERE empno %% 3 <> 0"
        )
    base = {"emp": {"empno": "pk_empno", "fname": "sv_fname", "phone": "mv_phone"}}
    watches = (
        WatchSettings(view="view_emp", base=base, membership=("fname",)),
        WatchSettings(table="usr"),
        WatchSettings(table="grp"),
    )
    config = replace(config_of(log), watches=watches)
    log_rows(log, random_rows(1_500, seed=9))
    copy(config, tmp_path / "out", partition_rows=400)
    sent = publish(config)
    assert list(events_of(documents_of(tmp_path / "out"))) == sent
    kinds: dict[str, set[int]] = {}
    for event in sent:
        if 'class-name="view_emp"' in event:
            key = int(event.partition("pk_empno=")[2].partition(",")[0])
            kinds.setdefault(event.partition(" ")[0], set()).add(key)
    assert kinds["<delete"] == {key for key in kinds["<delete"] if key % 3 == 0 and 0 < key <= 100}
    assert all(key % 3 and key <= 100 for key in kinds["<modify"])


FAILING: Final = "CASE WHEN fname = 'QZWXV' THEN fname::integer > 0 ELSE true END"


def test_a_job_quotes_no_row_for_which_the_condition_fails(log: sa.Engine, tmp_path: Path) -> None:
    execute(log, f"UPDATE {SCHEMA}.usr SET fname = 'QZWXV' WHERE idu < 9")
    log_rows(log, [(n, 5, None, "usr", f"idu={n}", None, None, None) for n in range(1, 30)])
    config = filtered(config_of(log), FilterSettings("usr", FAILING))
    config = replace(config, format=replace(config.format, type="cloudevents"))
    convert(config, tmp_path / "out", format="cloudevents")
    files = [pq.read_table(one) for one in (tmp_path / "out").rglob("*.parquet")]
    texts = str([one.to_pylist() for one in files])
    assert "the condition of [[filter]] usr fails: 22P02 invalid text representation" in texts
    assert "QZWXV" not in texts


def test_a_job_that_fails_quotes_no_row(
    log: sa.Engine, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    execute(
        log,
        f"UPDATE {SCHEMA}.emp SET fname = 'QZWXV' WHERE empno = 7",
        f"CREATE OR REPLACE VIEW {SCHEMA}.view_emp AS SELECT empno AS pk_empno, "
        f"(CASE WHEN empno = 7 THEN fname::integer::text ELSE fname END)::text AS sv_fname, "
        f"phone AS mv_phone FROM {SCHEMA}.emp",
    )
    log_rows(log, [(n, 5, None, "view_emp", f"pk_empno={n}", None, None, None) for n in (6, 7)])
    config = replace(config_of(log), masks=(MaskSettings("view_emp", ("sv_fname",), "redact"),))
    with pytest.raises(
        EventlogError, match=r"22P02 invalid text repr.*reading class view_emp"
    ) as it:
        copy(config, tmp_path / "out")
    printed = capfd.readouterr()
    traced = "".join(traceback.format_exception(it.value))
    assert "QZWXV" not in printed.out + printed.err + traced
