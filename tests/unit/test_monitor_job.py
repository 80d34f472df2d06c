"""The monitor of a backlog job: what it shows of a stage, and that asking never fails the job."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from eventlog.publisher.context.observer import JobProgress
from eventlog.publisher.monitor.activity import JobActivity
from eventlog.publisher.monitor.openmetrics import JobMetrics, exposition
from eventlog.publisher.monitor.status import job_status, shape
from eventlog.publisher.run.liveness import LivenessClock


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


def nothing() -> JobProgress:
    return JobProgress(total=1000)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def activity(clock: Clock) -> JobActivity:
    return JobActivity(5, LivenessClock(60, clock), wall=clock)


def metrics(activity: JobActivity) -> dict[str, float]:
    text = exposition(JobMetrics(activity, {"log": "eventlog", "format": "xds"}))[0].decode()
    return {
        sample.name
        + "".join(value for name, value in sample.labels.items() if name == "stage"): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_stage_shows_how_far_it_is_and_how_long_it_will_take(
    activity: JobActivity, clock: Clock
) -> None:
    progress = [nothing()]
    assert not activity.is_ready
    with activity.during("converting", lambda: progress[0]):
        clock.now += 5
        progress[0] = JobProgress(0.25, 250, 100, parts="1 of 4 parts", total=1000)
        activity.add_sample()
        status = job_status(activity, "eventlog", "/out", "xds")
        assert status.keys() == shape().keys()
        assert status["job"] == {
            "stage": "converting",
            "share": 0.25,
            "rows": 250,
            "events": 100,
            "total": 1000,
            "parts": "1 of 4 parts",
            "seconds_left": 15.0,
        }
        assert status["state"]["words"] == "converting: 25%, about 15 s left"
        (sample,) = activity.history
        assert (sample.rows_per_second, sample.events_per_second, sample.queue_rows) == (
            50,
            20,
            750,
        )
        told = metrics(activity)
        assert told["eventlog_backlog_rows_read_total"] == 250
        assert told["eventlog_backlog_stage_ratio"] == 0.25
        assert told["eventlog_backlog_stageconverting"] == 1
    assert activity.is_ready
    assert activity.stage == "ending"


def test_what_one_stage_did_stays_counted_in_the_next(activity: JobActivity, clock: Clock) -> None:
    with activity.during("converting", lambda: JobProgress(1.0, 1000, 400, total=1000)):
        clock.now += 1
    with activity.during("marking", lambda: JobProgress(0.5, 500, total=1000)):
        clock.now += 1
        activity.add_sample()
        told = metrics(activity)
    assert told["eventlog_backlog_rows_read_total"] == 1000
    assert told["eventlog_backlog_events_written_total"] == 400
    assert told["eventlog_backlog_rows_marked_total"] == 500
    assert min(sample.events_per_second for sample in activity.history) >= 0


def test_a_job_without_progress_is_not_alive_for_ever(activity: JobActivity, clock: Clock) -> None:
    with activity.during("converting", nothing):
        clock.now += 61
        activity.add_sample()
        assert not activity.liveness.is_alive


def test_a_progress_that_cannot_be_asked_for_leaves_the_job_and_its_error_alone(
    activity: JobActivity,
) -> None:
    def gone() -> JobProgress:
        raise ConnectionError("Spark is gone")

    def fail() -> None:
        with activity.during("converting", gone):
            activity.add_sample()
            raise ValueError("the job's own")

    with pytest.raises(ValueError, match="the job's own"):
        fail()
    assert not activity.history
