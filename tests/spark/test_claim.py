"""A finished directory can be trusted: its rows are held until they are marked (spec/event-log.md
8.6).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import sqlalchemy as sa
from backlog_job import (
    LOG,
    config_of,
    convert,
    copy,
    documents_of,
    events_of,
    fetch,
    files_of,
    leave_in_flight,
    log_rows,
    publish,
    random_rows,
    statuses,
    statuses_of,
)

from eventlog import cli
from eventlog.errors import ConfigError, DatabaseError
from eventlog.publisher.context.context import Counters
from eventlog.publisher.declared.opening import open_unlocked
from eventlog.publisher.inspect.doctor import examine
from eventlog.publisher.ledger.in_flight import read_recorded
from eventlog.spark.backlog import claim
from eventlog.spark.backlog.backlog import count_to_mark
from eventlog.spark.backlog.claim import differences, release
from eventlog.spark.backlog.preflight import estimate
from eventlog.spark.directory import Directory, masked


def add_row(log: sa.Engine, key: str, value: str = "later") -> int:
    statement = (
        f"INSERT INTO {LOG} (event_type, table_name, table_key, column_name, new_value) "
        f"VALUES (1, 'usr', '{key}', 'fname', '{value}') RETURNING record_id"
    )
    with log.connect() as connection:
        (record_id,) = connection.exec_driver_sql(statement).one()
        connection.commit()
    return int(record_id)


def ids_in(events: list[str]) -> set[str]:
    return {event.split('event-id="')[1].split('"')[0] for event in events}


def test_a_publisher_skips_claimed_rows_and_later_rows_of_their_objects(
    log: sa.Engine, tmp_path: Path
) -> None:
    log_rows(
        log, [(i, 1, "app", "usr", f"idu={i % 50}", "fname", None, f"v{i}") for i in range(1, 500)]
    )
    out = tmp_path / "out"
    convert(config_of(log), out)
    of_held, of_another = add_row(log, ' idu = "+7"'), add_row(log, "idu=2001")

    assert ids_in(publish(config_of(log))) == {str(of_another)}
    after = statuses(log)
    assert {after[i] for i in range(1, 500)} == {"N"}
    assert after[of_held] == "N"

    assert convert(config_of(log), out, mark=True).marked == 499
    assert ids_in(publish(config_of(log))) == {str(of_held)}
    assert set(statuses(log).values()) == {"S"}


def test_a_row_that_commits_late_among_claimed_rows_waits_with_the_rows_after_it(
    log: sa.Engine, tmp_path: Path
) -> None:
    log_rows(log, [(i, 1, "app", "usr", f"idu={i}", "fname", None, "v") for i in range(1, 50)])
    out = tmp_path / "out"
    with log.connect() as late:
        late.exec_driver_sql(
            f"INSERT INTO {LOG} (event_type, table_name, table_key, column_name, new_value) "
            "VALUES (1, 'usr', 'idu=900', 'fname', 'late')"
        )
        behind = add_row(log, "idu=2")  # so that the late one is among those of the snapshot
        convert(config_of(log), out)
        assert publish(config_of(log)) == []  # the late one may still come, and claim its object
        late.commit()
    behind_late, of_another = add_row(log, "idu=900"), add_row(log, "idu=2001")
    assert ids_in(publish(config_of(log))) == {str(of_another)}
    convert(config_of(log), out, mark=True)
    assert statuses(log)[behind] == "S"
    assert ids_in(publish(config_of(log))) == {str(behind - 1)}  # with the row after it, in order
    assert statuses(log)[behind_late] == "S"


def test_a_recorded_delivery_that_is_in_the_directory_is_not_sent(
    log: sa.Engine, tmp_path: Path
) -> None:
    log_rows(log, random_rows(600, seed=71))
    config = config_of(log, publisher__batch_size="10")
    leave_in_flight(config, 2)
    out = tmp_path / "out"
    report = convert(config, out)
    assert report.manifest.in_flight
    assert publish(config) == []
    convert(config, out, mark=True)
    assert "N" not in statuses(log).values()
    # The job does not write the recorded delivery: the next publisher removes the claim with it.
    assert fetch(log, f"SELECT kind FROM {LOG}_state") == [("claim",)]
    assert publish(config) == []
    assert fetch(log, f"SELECT * FROM {LOG}_inflight") == []
    assert fetch(log, f"SELECT * FROM {LOG}_state") == []


def test_a_recorded_event_whose_row_has_become_invalid_comes_again_under_its_next_id(
    log: sa.Engine, tmp_path: Path
) -> None:
    log_rows(log, [(i, 1, "app", "usr", f"idu={i}", "fname", None, "v") for i in range(1, 4)])
    config = config_of(log, publisher__batch_size="2")
    leave_in_flight(config, 0)
    with log.begin() as connection:  # the receiver may have applied 1 and 2
        connection.exec_driver_sql(f"UPDATE {LOG} SET table_key = 'idu' WHERE record_id <> 1")
    convert(config, tmp_path / "out", mark=True)
    assert statuses(log) == {1: "S", 2: "E", 3: "E"}
    with log.begin() as connection:
        connection.exec_driver_sql(
            f"UPDATE {LOG} SET table_key = 'idu=' || record_id, status = 'N' WHERE status = 'E'"
        )
    assert ids_in(publish(config)) == {"2.2", "3.2"}


def test_abandoned_rows_go_back_to_the_publisher_and_the_directory_is_unfinished(
    log: sa.Engine, tmp_path: Path
) -> None:
    log_rows(log, random_rows(500, seed=72))
    out = tmp_path / "out"
    config = config_of(log)
    convert(config, out)
    converted = list(events_of(documents_of(out)))
    with pytest.raises(ConfigError, match=r"Give --out .*/out"):
        release(config, str(tmp_path / "other"))
    assert release(config, str(out), dry=True).rows == count_to_mark(config, str(out)) == 500
    assert (out / "_SUCCESS").exists()
    release(config, str(out))
    assert not (out / "_SUCCESS").exists()
    with pytest.raises(ConfigError, match="nothing to release"):
        release(config, str(out))
    assert publish(config) == converted


def test_marks_that_have_begun_are_not_abandoned_by_accident(
    log: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_rows(log, random_rows(300, seed=73))
    out, config = tmp_path / "out", config_of(log)
    with monkeypatch.context() as patch:
        patch.setattr(claim, "mark_rows", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            convert(config, out, mark=True)
    assert publish(config) == []
    with pytest.raises(ConfigError, match="marking has begun"):
        release(config, str(out))
    assert convert(config, out, mark=True).marked == 300


def test_marking_with_other_settings_is_refused_and_names_them(
    log: sa.Engine, tmp_path: Path
) -> None:
    log_rows(log, random_rows(200, seed=74))
    out = tmp_path / "out"
    convert(config_of(log), out)
    for now, message in (
        ({"publisher__delete_from_log": "yes"}, "publisher.delete_from_log is true, was false"),
        ({"publisher__fold_distance": "5"}, "publisher.fold_distance is 5, was 1000"),
        ({"publisher__loopback_action": "keep"}, 'publisher.loopback_action is "keep", was "mark"'),
    ):
        with pytest.raises(ConfigError, match=message):
            convert(config_of(log, **now), out, mark=True)
        assert set(statuses(log).values()) == {"N"}
    convert(
        config_of(log, publisher__polling_interval="77"), out, mark=True
    )  # which decides on nothing
    assert "N" not in statuses(log).values()


def test_a_file_that_has_changed_stops_the_marks(log: sa.Engine, tmp_path: Path) -> None:
    log_rows(log, random_rows(200, seed=75))
    out = tmp_path / "out"
    convert(config_of(log), out)
    for which in ("part-*.xmll", "_ids/*", "_manifest.json"):
        (file, *_) = out.glob(which)
        content = file.read_bytes()
        file.write_bytes(
            content.replace(b"fname", b"lname") if b"fname" in content else content + b" "
        )
        with pytest.raises(ConfigError, match=f"{file.name} has changed since it was written"):
            convert(config_of(log), out, mark=True)
        assert set(statuses(log).values()) == {"N"}
        file.write_bytes(content)
    convert(config_of(log), out, mark=True)
    assert "N" not in statuses(log).values()


def test_every_file_has_the_name_of_its_job_and_its_checksum_in_the_manifest(
    log: sa.Engine, tmp_path: Path
) -> None:
    log_rows(log, random_rows(200, seed=76))
    report = copy(config_of(log), tmp_path / "out")
    manifest = json.loads((tmp_path / "out" / "_manifest.json").read_text())
    named = {
        file.relative_to(tmp_path / "out").as_posix() for file in (tmp_path / "out").rglob("part-*")
    }
    assert named == report.manifest.checksums.keys()
    assert all(manifest["job"] in name for name in named)
    assert len(files_of(tmp_path / "out")) == 1


def test_rows_are_converted_for_one_directory_at_a_time_but_copied_at_any_time(
    log: sa.Engine, tmp_path: Path
) -> None:
    log_rows(log, random_rows(200, seed=77))
    first = convert(config_of(log), tmp_path / "first")
    with pytest.raises(ConfigError, match=r"200 rows up to record_id .* claimed for .*/first"):
        convert(config_of(log), tmp_path / "second")
    assert not (tmp_path / "second").exists()
    assert copy(config_of(log), tmp_path / "second").manifest.totals == first.manifest.totals
    with pytest.raises(
        ConfigError, match="does not claim its rows: it was converted with --no-claim"
    ):
        convert(config_of(log), tmp_path / "second", mark=True)
    assert statuses(log).keys() == statuses_of(tmp_path / "first", first).keys()


def test_a_job_that_dies_between_claim_and_success_starts_over(
    log: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_rows(log, random_rows(300, seed=78))
    write, out = Directory.write, tmp_path / "out"

    def die(self: Directory, name: str, content: bytes) -> None:
        if name == "_SUCCESS":
            raise KeyboardInterrupt
        write(self, name, content)

    with monkeypatch.context() as patch:
        patch.setattr(Directory, "write", die)
        with pytest.raises(KeyboardInterrupt):
            convert(config_of(log), out)
    assert publish(config_of(log)) == []  # held, whatever became of the directory
    assert convert(config_of(log), out, mark=True).marked == 300


def test_status_and_doctor_show_claimed_rows(
    log: sa.Engine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    log_rows(log, random_rows(100, seed=79))
    convert(config_of(log), tmp_path / "out")
    file = tmp_path / "eventlog.toml"
    file.write_text('[database]\nschema_name = "hr"\n')
    monkeypatch.setenv("EVENTLOG_DATABASE_URL", log.url.render_as_string(hide_password=False))
    assert cli.run(["--config", str(file), "status"]) == 0
    said = capsys.readouterr().out
    assert "100 rows up to record_id" in said
    assert f"claimed for {tmp_path / 'out'}" in said
    assert "eventlog backlog release" in said
    assert cli.run(["--config", str(file), "status", "--json"]) == 0
    assert str(tmp_path / "out") in json.loads(capsys.readouterr().out)["backlog"]
    assert [
        one.severity
        for one in examine(config_of(log), lambda *_: None)
        if one.code == "backlog_waits"
    ] == ["warning"]
    assert (
        cli.run(["backlog", "release", "--config", str(file), "--out", str(tmp_path / "out")]) == 0
    )
    assert "given back to the publisher" in capsys.readouterr().out


def test_an_entry_of_an_unknown_kind_is_refused(log: sa.Engine) -> None:
    with log.connect() as connection:
        connection.exec_driver_sql(
            f"INSERT INTO {LOG}_inflight (entry_no, kind, content) VALUES (1, 'new', '{{}}')"
        )
        connection.commit()
    with pytest.raises(
        DatabaseError, match="is of kind 'new': a newer version of eventlog wrote it"
    ):
        publish(config_of(log))
    with open_unlocked(config_of(log), Counters()) as context, pytest.raises(DatabaseError):
        read_recorded(context.log)


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("s3://AKIA:se%2Fcret@bucket/out?region=eu", "s3://***@bucket/out?region=eu"),
        (
            "s3://bucket/out?access_key=A&secret_key=B&region=eu",
            "s3://bucket/out?access_key=***&secret_key=***&region=eu",
        ),
        (
            "abfss://container@account.dfs/out?sas_token=x",
            "abfss://container@account.dfs/out?sas_token=***",
        ),
        ("/plain/a:b@c?key=d", "/plain/a:b@c?key=d"),
    ],
)
def test_keys_in_a_uri_are_masked(uri: str, shown: str) -> None:
    assert masked(uri) == shown


def test_a_uri_that_cannot_be_used_is_named_without_its_keys() -> None:
    with pytest.raises(ConfigError) as refused:
        Directory("s3://AKIA:secret@/?nonsense=1&secret_key=B")
    assert "secret@" not in str(refused.value)
    assert "=B" not in str(refused.value)


def test_each_different_setting_is_one_phrase() -> None:
    assert differences({"a": "1", "b": "2"}, {"b": "3", "c": "4"}) == [
        "a is unset, was 1", "b is 3, was 2", "c is 4, was unset",
    ]  # fmt: skip


def test_the_command_may_change_whether_rows_are_marked_or_deleted(
    log: sa.Engine, tmp_path: Path
) -> None:
    log_rows(log, random_rows(300, seed=80))
    out = tmp_path / "out"
    report = convert(config_of(log, publisher__loopback_action="mark"), out)
    convert(config_of(log, publisher__loopback_action="mark"), out, mark=True, acknowledge="delete")
    bad = {i for i, letter in statuses_of(out, report).items() if letter == "E"}
    assert statuses(log) == dict.fromkeys(bad, "E")


def test_an_estimate_counts_and_changes_nothing(log: sa.Engine, tmp_path: Path) -> None:
    log_rows(log, random_rows(3_000, seed=81))
    plan = estimate(config_of(log), "local[2]", 1_000)
    assert (plan.rows, plan.cores, plan.claimed) == (3_000, 2, False)
    assert plan.mark_seconds > plan.delete_seconds
    report = convert(config_of(log), tmp_path / "out")
    assert plan.bytes == pytest.approx(report.manifest.totals["bytes"], rel=0.3)
    assert plan.events == pytest.approx(report.manifest.totals["events"], rel=0.1)
    assert estimate(config_of(log), "local[2]", 1_000).claimed
    assert set(statuses(log).values()) == {"N"}
