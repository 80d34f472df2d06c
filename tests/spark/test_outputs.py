"""Files in queue order, none too large, and a directory that is taken, refused or gone on with."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from backlog_job import (
    config_of,
    convert,
    copy,
    documents_of,
    events_of,
    files_of,
    log_rows,
    random_rows,
    statuses,
)

from eventlog.errors import ConfigError
from eventlog.spark.directory import JobDirectory


@pytest.fixture
def full_log(log: sa.Engine) -> sa.Engine:
    log_rows(log, random_rows(2_000, seed=20))
    return log


@pytest.mark.promise("spark BacklogRequest", "spark run_backlog")
def test_every_layout_and_compression_has_the_same_events(
    full_log: sa.Engine, tmp_path: Path
) -> None:
    cases = [
        ("lines", "none"),
        ("lines", "gzip"),
        ("lines", "zstd"),
        ("documents", "none"),
        ("parquet", "zstd"),
    ]
    held = {}
    for file_layout, compression in cases:
        out = tmp_path / f"{file_layout}-{compression}"
        report = copy(
            config_of(full_log, publisher__batch_size="20"), out, file_layout=file_layout,
            compression=compression, partition_rows=750,
        )  # fmt: skip
        held[out.name] = list(events_of(documents_of(out)))
        assert [path.name for path in files_of(out)] == [
            file.name for file in report.manifest.files
        ]
        assert len(report.manifest.parts) == 3
    first = held["lines-none"]
    assert len(first) > 500
    assert all(events == first for events in held.values())
    documents = files_of(tmp_path / "documents-none")
    assert len(documents) == len(documents_of(tmp_path / "lines-none"))

    table = pq.read_table(files_of(tmp_path / "parquet-zstd"))
    assert table.column_names == ["event_id", "class", "operation", "association", "document"]
    for row, event in zip(table.to_pylist(), first, strict=True):
        assert event.startswith(
            f'<{row["operation"]} class-name="{row["class"]}" event-id="{row["event_id"]}">'
        )


def test_no_file_is_larger_than_it_may_be(full_log: sa.Engine, tmp_path: Path) -> None:
    most = 128 * 1024
    whole = tmp_path / "whole"
    copy(config_of(full_log), whole)
    events = list(events_of(documents_of(whole)))
    for file_layout, compression in (("lines", "none"), ("lines", "gzip"), ("parquet", "none")):
        out = tmp_path / f"{file_layout}-{compression}"
        report = copy(
            config_of(full_log),
            out,
            file_layout=file_layout,
            compression=compression,
            max_file_bytes=most,
        )
        sizes = [path.stat().st_size for path in files_of(out)]
        assert max(sizes) <= most
        assert sizes == [file.bytes for file in report.manifest.files]
        if compression == "none":
            assert len(sizes) > len(report.manifest.parts)
        assert list(events_of(documents_of(out))) == events


@pytest.mark.promise("spark BacklogReport")
def test_the_manifest_of_a_finished_directory_describes_its_content_and_names_its_log(
    full_log: sa.Engine, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    convert(config_of(full_log), out)
    names = {path.name for path in out.iterdir()}
    assert {"_SUCCESS", "_manifest.json", "_ids"} <= names
    assert not names & {"_temporary", "_STARTED"}
    manifest = json.loads((out / "_manifest.json").read_text())
    assert manifest["log"] == "hr.eventlog"
    assert (
        manifest["totals"]["rows_read"]
        == 2_000
        == sum(part["rows_read"] for part in manifest["parts"])
    )
    assert manifest["totals"]["events"] == len(list(events_of(documents_of(out))))
    assert "password" not in json.dumps(manifest)

    another = (out / "_manifest.json").read_text().replace('"hr.eventlog"', '"fin.eventlog"')
    (out / "_manifest.json").write_text(another)
    with pytest.raises(ConfigError, match=r"contains documents of the log fin\.eventlog"):
        convert(config_of(full_log), out, mark=True)
    assert set(statuses(full_log).values()) == {"N"}


def test_an_empty_log_gives_an_empty_finished_directory(log: sa.Engine, tmp_path: Path) -> None:
    report = convert(config_of(log), tmp_path / "out", mark=True)
    assert (report.manifest.files, report.marked) == ([], 0)
    assert (tmp_path / "out" / "_SUCCESS").exists()


@pytest.mark.parametrize("content", ["notes.txt", "_SUCCESS", "part-000001-00001.xmll"])
def test_a_directory_of_others_is_refused_and_not_changed(
    log: sa.Engine, tmp_path: Path, content: str
) -> None:
    (tmp_path / content).write_text("mine")
    with pytest.raises(ConfigError, match="not the output of a backlog job"):
        convert(config_of(log), tmp_path, mark=True)
    assert [path.name for path in tmp_path.iterdir()] == [content]
    assert (tmp_path / content).read_text() == "mine"


def test_an_unfinished_job_is_discarded_and_starts_over(
    full_log: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(JobDirectory, "finish", die)
        with pytest.raises(KeyboardInterrupt):
            convert(config_of(full_log), out, mark=True, partition_rows=400)
    assert files_of(out)
    assert not (out / "_SUCCESS").exists()
    assert set(statuses(full_log).values()) == {"N"}

    report = convert(config_of(full_log), out, mark=True, partition_rows=5_000)
    assert not report.resumed
    assert len(files_of(out)) == len(report.manifest.files) == 1
    assert "N" not in statuses(full_log).values()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"file_layout": "csv"}, "file layout 'csv' is unknown"),
        ({"compression": "lzo"}, "compression 'lzo' is unknown"),
        ({"max_file_bytes": 10}, "too small"),
        ({"partition_rows": 0}, "1 or more"),
    ],
)
def test_invalid_options_are_named(
    tmp_path: Path, options: dict[str, object], message: str
) -> None:
    from eventlog.config.load import load

    with pytest.raises(ConfigError, match=message):
        convert(load(None, {}), tmp_path / "out", **options)


def test_an_order_by_event_time_is_refused(log: sa.Engine, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="handle_future_events"):
        convert(config_of(log, publisher__handle_future_events="yes"), tmp_path / "out")
