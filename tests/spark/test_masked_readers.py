"""What Spark reads of a log with masked columns is what its publisher sends, and never a masked
value (spec/event-log.md 15.1).
"""

from __future__ import annotations

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
    copy,
    documents_of,
    events_of,
    fetch,
    leave_in_flight,
    log_rows,
    publish,
    random_rows,
)
from stream_engine import Engine, reader_of, rows_of

from eventlog.config.load import Config
from eventlog.config.settings import MaskSettings
from eventlog.errors import ConfigError
from eventlog.spark.changes.change_log import close_cached_connection
from eventlog.spark.changes.changes import ChangesDataSource

SECRET: Final = "a secret of at least sixteen"
MASKS: Final = (
    MaskSettings("usr", ("fname",), "hash"),
    MaskSettings("usr", ("photo",), "hash", salt_by_column=True),
    MaskSettings("usr", ("lname",), "redact"),
    MaskSettings("usr", ("age",), "null"),
    MaskSettings("usr_phone", ("phoneno",), "hash"),
    MaskSettings("view_emp", ("mv_phone",), "hash"),
)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "mask-secret"
    file.write_text(SECRET)
    return file


def masked(config: Config, secret: Path) -> Config:
    """The workers of Spark read the secret from its file."""
    return replace(
        config,
        masks=MASKS,
        format=replace(config.format, mask_secret=SECRET),
        secret_files={"format.mask_secret": secret},
    )


def test_a_job_and_the_publisher_send_the_same_masked_events_byte_for_byte(
    log: sa.Engine, tmp_path: Path, secret: Path
) -> None:
    rows = random_rows(1_500, seed=4)
    log_rows(log, [next(rows) for _ in range(300)])
    config = masked(config_of(log), secret)
    leave_in_flight(config, documents=3)
    log_rows(log, rows)
    copy(config, tmp_path / "out", partition_rows=400)
    sent = publish(config)
    assert len(sent) > 300
    assert list(events_of(documents_of(tmp_path / "out"))) == sent
    for value in ("Grüße", "555-", "before"):
        assert not [event for event in sent if value in event and 'class-name="usr"' in event]


def test_change_tables_have_masked_values(log: sa.Engine, tmp_path: Path, secret: Path) -> None:
    log_rows(log, random_rows(600, seed=5))
    copy(masked(config_of(log), secret), tmp_path / "out", format="qlik-change-table")
    files = [one for one in (tmp_path / "out").rglob("*.parquet") if "usr__ct" in str(one)]
    table = pa.concat_tables(map(pq.read_table, files))
    assert {str(table.schema.field(name).type) for name in ("fname", "lname", "age")} == {"string"}
    texts = {one for one in table.column("fname").to_pylist() if one is not None}
    assert texts
    assert {len(one) for one in texts} == {64}
    assert set(table.column("lname").to_pylist()) <= {"***", None}
    assert set(table.column("age").to_pylist()) == {None}


@pytest.fixture
def file(log_alone: sa.Engine, tmp_path: Path, secret: Path) -> Iterator[str]:
    url = tmp_path / "url"
    url.write_text(log_alone.url.render_as_string(hide_password=False))
    config = tmp_path / "eventlog.toml"
    config.write_text(
        f'[database]\nschema_name = "{SCHEMA}"\nurl_file = "{url}"\n[publisher]\n'
        f'driver_user = "publisher"\n[format]\nmask_secret_file = "{secret}"\n'
        '[[mask]]\ntable = "usr"\ncolumns = ["fname"]\nhow = "hash"\n'
        '[[mask]]\ntable = "usr"\ncolumns = ["age"]\nhow = "redact"\n'
    )
    yield str(config)
    close_cached_connection()


def read_all(**options: object) -> list[dict[str, Any]]:
    """What ``spark.read`` gives, without Java."""
    source = ChangesDataSource({name: str(value) for name, value in options.items()})
    reader = source.reader(source.schema())
    return [row for partition in reader.partitions() for row in rows_of(reader.read(partition))]


def test_data_frames_have_masked_values(log_alone: sa.Engine, file: str) -> None:
    log_rows(log_alone, random_rows(600, seed=6))
    rows = read_all(config=file, **{"class": "usr"})
    images = [image for row in rows for image in (row["before"], row["after"]) if image]
    names = {image["fname"] for image in images if image["fname"] is not None}
    assert names
    assert {len(one) for one in names} == {64}
    ages = {image["age"] for image in images if image["age"] is not None}
    assert ages == {"***"}
    for row in rows:
        assert (row["changed"] is None) or set(row["changed"]) <= set(row["after"] or ())


def test_a_job_compares_its_masks_with_those_of_the_publisher_and_records_none(
    log: sa.Engine, tmp_path: Path, secret: Path
) -> None:
    log_rows(log, random_rows(50, seed=4))
    config = masked(config_of(log), secret)
    copy(config, tmp_path / "out")
    of_masks = f"SELECT count(*) FROM {SCHEMA}.eventlog_inflight WHERE kind = 'masks'"
    assert fetch(log, of_masks) == [(0,)]
    publish(config)
    assert fetch(log, of_masks) == [(1,)]
    with pytest.raises(ConfigError, match=r"usr\.fname had the mask hash and has none now"):
        copy(replace(config, masks=MASKS[1:]), tmp_path / "other")


def write_masks(file: str, secret: Path, *masks: tuple[str, str]) -> None:
    """Write the configuration again with these masks of columns of ``usr``."""
    before = Path(file).read_text().partition("[format]")[0]
    Path(file).write_text(
        f'{before}[format]\nmask_secret_file = "{secret}"\n'
        + "".join(
            f'[[mask]]\ntable = "usr"\ncolumns = ["{column}"]\nhow = "{how}"\n'
            for column, how in masks
        )
    )


@pytest.fixture
def checkpoint(log_alone: sa.Engine, file: str, tmp_path: Path) -> Path:
    """The checkpoint of a query that has read rows with the masks of ``file``."""
    log_rows(log_alone, random_rows(50, seed=6))
    reader = reader_of(config=file)
    assert Engine(reader, tmp_path / "checkpoint").rest()
    reader.stop()
    close_cached_connection()
    return tmp_path / "checkpoint"


@pytest.mark.parametrize(
    ("masks", "key", "what"),
    [
        ([("fname", "hash")], SECRET, r"usr\.age had the mask redact and has none now"),
        ([("fname", "hash"), ("age", "null")], SECRET, "has the mask null now"),
        ([("fname", "hash"), ("age", "redact")], "another of at least sixteen", "the secret"),
    ],
    ids=["removed", "other", "secret"],
)
def test_a_checkpoint_of_other_masks_is_refused(
    file: str, checkpoint: Path, secret: Path, masks: list[tuple[str, str]], key: str, what: str
) -> None:
    secret.write_text(key)
    write_masks(file, secret, *masks)
    with pytest.raises(ConfigError, match=rf"other \[\[mask\]\].*{what}"):
        Engine(reader_of(config=file), checkpoint).rest()


def test_a_mask_that_is_added_goes_on_from_the_checkpoint_and_is_recorded(
    log_alone: sa.Engine, file: str, checkpoint: Path, secret: Path
) -> None:
    added = [("fname", "hash"), ("age", "redact"), ("lname", "null")]
    write_masks(file, secret, *added)
    log_rows(log_alone, list(random_rows(100, seed=6))[50:])
    reader = reader_of(config=file)
    assert Engine(reader, checkpoint).rest()
    reader.stop()
    close_cached_connection()
    write_masks(file, secret, *added[:2])
    with pytest.raises(ConfigError, match=r"usr\.lname had the mask null"):
        Engine(reader_of(config=file), checkpoint).rest()


def test_a_query_begins_only_if_no_generated_column_shows_what_a_mask_hides(
    log_alone: sa.Engine, file: str, tmp_path: Path
) -> None:
    with log_alone.begin() as conn:
        conn.exec_driver_sql(
            f"ALTER TABLE {SCHEMA}.usr ADD copied text GENERATED ALWAYS AS (lower(fname)) STORED"
        )
    try:
        with pytest.raises(ConfigError, match="the generated column 'copied' shows"):
            reader_of(config=file).initialOffset()
    finally:
        with log_alone.begin() as conn:
            conn.exec_driver_sql(f"ALTER TABLE {SCHEMA}.usr DROP copied")
