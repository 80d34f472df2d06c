"""The metrics of a publisher, and of a backlog job, in OpenMetrics ("Metrics" in
docs/reference/metrics.md is generated from them).

All values come from the publisher's reports, so a scrape runs no statement on the database.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC
from typing import Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector, CollectorRegistry

from eventlog import __version__
from eventlog.publisher.context.conditions import KINDS
from eventlog.publisher.context.observer import Doing
from eventlog.publisher.monitor.activity import STAGES, Activity, Histogram, JobActivity
from eventlog.publisher.run.health import Health
from eventlog.sql.log.verifications import LastVerification

_COUNTERS: Final = (
    ("rows_read", "eventlog_rows_read", "Rows read of the log, or changes of a source."),
    (
        "rows_published",
        "eventlog_rows_published",
        "Rows that were answered success or warning.",
    ),
    (
        "letters_sent",
        "eventlog_dead_letters_sent",
        "Dead letters that the sink of [dead_letter] has accepted.",
    ),
    (
        "letters_refused",
        "eventlog_dead_letters_refused",
        "Dead letters that the sink of [dead_letter] has refused.",
    ),
    (
        "rows_requeued",
        "eventlog_rows_requeued",
        "Rows that were put back after status E or F and are done again.",
    ),
    (
        "rows_invalid",
        "eventlog_rows_invalid",
        "Rows that failed a check: status E, with a row in the error table.",
    ),
    (
        "rows_missing",
        "eventlog_rows_missing",
        "Rows that were deleted from the log before their answer was recorded.",
    ),
    ("rows_loopback", "eventlog_rows_loopback", "Rows of the publisher's own database user."),
    (
        "rows_dropped",
        "eventlog_rows_dropped",
        "Rows without effect, because another row of the event reads their values.",
    ),
    ("rows_gone", "eventlog_rows_gone", "Rows whose object was gone when it was read back."),
    ("rows_noop", "eventlog_rows_noop", "Rows that change nothing for the receiver."),
    (
        "events_sent",
        "eventlog_events_sent",
        "Events that were answered; an event that is sent again counts each time.",
    ),
    (
        "documents_sent",
        "eventlog_documents_sent",
        "Documents that got any answer; heartbeats are not counted.",
    ),
    ("heartbeats_sent", "eventlog_heartbeats_sent", "Heartbeats sent."),
)
SOURCE_LAG: Final[Mapping[str, tuple[str, str]]] = {
    unit: (f"eventlog_source_lag_{unit}", text)
    for unit, text in (
        ("rows", "Rows that a followed source holds after its position."),
        ("bytes", "Bytes that a followed source holds after its position."),
        ("messages", "Messages that a followed source holds after its position."),
    )
}
"""The name and the text of the metric of a followed source, by the unit that the source counts."""
_LEVELS: Final = ("success", "warning", "error", "retry", "fatal")


def exposition(metrics: Collector, accept: str = CONTENT_TYPE_LATEST) -> tuple[bytes, str]:
    """Return the text of a scrape and its media type, in the Prometheus format that the header
    ``accept`` requests.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(metrics)
    encode, media_type = choose_encoder(accept)
    return encode(registry), media_type


_Labels = Mapping[str, str]
"""The labels of every metric of a process, such as the log and the type of the sink."""


def _build_info(labels: _Labels) -> Metric:
    build = InfoMetricFamily("eventlog_build", "The version that runs.", labels=list(labels))
    build.add_metric(list(labels.values()), {"version": __version__})
    return build


def _counter(
    name: str, text: str, labels: _Labels, number: float, created: float | None = None
) -> Metric:
    """Return a counter. ``created`` is the time when the counter began, in seconds since 1970."""
    family = CounterMetricFamily(name, text, labels=list(labels))
    family.add_metric(list(labels.values()), number, created=created)
    return family


def _gauge(name: str, text: str, labels: _Labels, number: float) -> Metric:
    """Return a gauge, whose number goes up and down."""
    family = GaugeMetricFamily(name, text, labels=list(labels), unit=_unit_of(name))
    family.add_metric(list(labels.values()), number)
    return family


def _numbers_by(
    kind: type[CounterMetricFamily] | type[GaugeMetricFamily],
    name: str,
    text: str,
    labels: _Labels,
    label: str,
    numbers: Mapping[str, float],
) -> Metric:
    """Return one counter or gauge for each value of a further label. ``numbers`` has the number for
    each value.
    """
    family = kind(name, text, labels=[*labels, label], unit=_unit_of(name))
    for value, number in numbers.items():
        family.add_metric([*labels.values(), value], number)
    return family


def _one_of(states: Iterable[str], now: str) -> dict[str, float]:
    """Return a number for each state: 1 for the present state, 0 for all others."""
    return {each: float(each == now) for each in states}


def _unit_of(name: str) -> str:
    """Return the unit at the end of a metric's name, empty if it has none."""
    last = name.rpartition("_")[2]
    return last if last in ("seconds", "ratio", "bytes") else ""


def _health(health: Health, labels: _Labels, conditions: Iterable[str]) -> Iterator[Metric]:
    """Yield the metrics of the health: its severity, and whether each condition holds."""
    text = "How bad the worst condition is: 0 = ok, 1 = warning, 2 = error."
    yield _gauge("eventlog_health", text, labels, health.severity.level)
    text = "1 while this health condition is true."
    family = GaugeMetricFamily(
        "eventlog_condition", text, labels=[*labels, "condition", "severity"]
    )
    now = {one.name: one.severity for one in health.conditions}
    for name in conditions:
        severity = now.get(name, KINDS[name].severity)
        family.add_metric([*labels.values(), name, severity.value], float(name in now))
    yield family


class PublisherMetrics(Collector):
    def __init__(self, activity: Activity, labels: _Labels) -> None:
        self._activity, self._labels = activity, labels

    def collect(self) -> Iterable[Metric]:
        activity, labels = self._activity, self._labels
        yield _build_info(labels)
        for field, name, text in _COUNTERS:
            yield _counter(name, text, labels, getattr(activity.counters, field), activity.started)
        answers = {level: getattr(activity.counters, f"answers_{level}") for level in _LEVELS}
        text = "Answers to events, by level."
        yield _numbers_by(CounterMetricFamily, "eventlog_answers", text, labels, "level", answers)
        rows = {
            level: getattr(activity.counters, f"rows_{level}")
            for level in _LEVELS
            if level != "retry"
        }
        text = "Rows of events with a final answer, by its level."
        yield _numbers_by(
            CounterMetricFamily, "eventlog_rows_answered", text, labels, "level", rows
        )
        text = "Waits before another attempt, by what the publisher waits for."
        yield _numbers_by(
            CounterMetricFamily, "eventlog_backoffs", text, labels, "target", activity.backoffs
        )
        text = "How often the publisher connected to the database again."
        yield _counter("eventlog_reconnects", text, labels, activity.reconnects)
        yield from _health(activity.health(), labels, KINDS)
        for name, text, number in self._gauges():
            yield _gauge(name, text, labels, number)
        if activity.measurement is not None:
            for name, text, numbers in (
                (
                    "eventlog_table_bytes",
                    "Bytes of the log and its internal tables on disk, with indexes.",
                    activity.measurement.table_bytes,
                ),
                (
                    "eventlog_table_dead_rows",
                    "Dead rows of the log and its internal tables, by the database's statistics.",
                    activity.measurement.dead_rows,
                ),
            ):
                if numbers:
                    yield _numbers_by(GaugeMetricFamily, name, text, labels, "table", numbers)
            yield from self._verified(activity.measurement.verified)
        text = "1 for the publisher's present state, 0 for all others."
        states = _one_of(Doing, activity.state.doing)
        yield _numbers_by(GaugeMetricFamily, "eventlog_state", text, labels, "state", states)
        text = "Time to read rows of the queue and to combine them into events."
        yield self._histogram("eventlog_window_seconds", text, activity.windows)
        text = "Time from sending a document to its answer."
        yield self._histogram("eventlog_send_duration_seconds", text, activity.document_seconds)
        if activity.measurement is not None and activity.measurement.clock is not None:
            text = "Time from event_time to the answer, of the first row of each document."
            yield self._histogram("eventlog_delivery_latency_seconds", text, activity.delays)

    def _verified(self, verified: Sequence[LastVerification]) -> Iterator[Metric]:
        """Yield the metrics of the last verification of each target."""
        if not verified:
            return
        ended = {one.target: one.ended.replace(tzinfo=UTC).timestamp() for one in verified}
        through = {
            one.target: one.verified_through.replace(tzinfo=UTC).timestamp()
            for one in verified
            if one.verified_through is not None
        }
        equal = {one.target: float(one.result == "equal") for one in verified}
        for name, text, numbers in (
            (
                "eventlog_verify_end_timestamp_seconds",
                "When a target was last verified.",
                ended,
            ),
            (
                "eventlog_verified_through_timestamp_seconds",
                "The time up to which the last verification compared all changes.",
                through,
            ),
            (
                "eventlog_verify_equal",
                "1 if the last verification found the target equal to the source.",
                equal,
            ),
            (
                "eventlog_verify_differences",
                "Objects that differed in the last verification.",
                {one.target: float(one.differences) for one in verified},
            ),
        ):
            yield _numbers_by(GaugeMetricFamily, name, text, self._labels, "target", numbers)

    def _gauges(self) -> Iterator[tuple[str, str, float]]:
        activity = self._activity
        yield (
            "eventlog_last_progress_timestamp_seconds",
            "When a cycle last ended well, or an answer other than retry came.",
            activity.progress_wall,
        )
        yield (
            "eventlog_ready",
            "1 if the publisher is connected and holds the lock of its log.",
            activity.is_ready,
        )
        if activity.differences is not None:
            text = "Tables whose triggers are not as declared; changes may not be captured."
            yield "eventlog_uncaptured_tables", text, len(activity.differences.uncaptured)
        measured = activity.measurement
        if measured is None:
            return
        if activity.bytes_in_a_day is not None:
            text = "Growth of the log and its internal tables per day, as in the last six hours."
            yield "eventlog_log_growth_bytes_per_day", text, activity.bytes_in_a_day
        if activity.keep_bytes_reached_seconds is not None:
            text = "Seconds until the log has keep_bytes if it grows as before; 0 if it has more."
            yield "eventlog_keep_bytes_reached_seconds", text, activity.keep_bytes_reached_seconds
        if measured.queue_rows is not None:
            yield (
                "eventlog_queue_rows",
                f"Rows with status N, counted up to {measured.cap}.",
                measured.queue_rows,
            )
            yield (
                "eventlog_queue_oldest_row_age_seconds",
                "Age of the first row with status N, by event_time; 0 if there is none.",
                activity.oldest_seconds or 0.0,
            )
        if measured.ranges is not None:
            text = (
                "Ranges of record_ids that a consumer has processed; rows in the gaps may still "
                "follow."
            )
            yield "eventlog_consumer_ranges", text, measured.ranges
        if measured.snapshot is not None:
            text = "Answered objects of the class that a consumer's snapshot reads now."
            yield "eventlog_snapshot_objects", text, measured.snapshot.objects
        lag = SOURCE_LAG.get(measured.behind_unit or "")
        if lag is not None and measured.behind is not None:
            yield (*lag, measured.behind)
        yield from (
            (
                "eventlog_refused_rows",
                "Rows that the receiver has refused for good, as `eventlog errors` lists them.",
                measured.refused_rows,
            ),
            (
                "eventlog_invalid_rows",
                "Rows that failed a check, as `eventlog errors` lists them.",
                measured.invalid_rows,
            ),
            (
                "eventlog_dead_letters_waiting",
                "Dead letters that wait for the sink of [dead_letter].",
                measured.letters,
            ),
            (
                "eventlog_oldest_dead_letter_age_seconds",
                "Age of the oldest dead letter; 0 if there is none.",
                measured.oldest_letter_seconds or 0.0,
            ),
            (
                "eventlog_objects_parked",
                "Parked objects: the receiver answered retry for their events, or failed.",
                len(measured.parked),
            ),
            (
                "eventlog_in_flight_rows",
                "Rows that are recorded in flight.",
                sum(delivery.rows for delivery, _ in activity.deliveries.values()),
            ),
            (
                "eventlog_oldest_delivery_age_seconds",
                "Age of the oldest delivery that is not done; 0 if there is none.",
                max(
                    (activity.clock() - since for _, since in activity.deliveries.values()),
                    default=0.0,
                ),
            ),
            (
                "eventlog_oldest_open_transaction_age_seconds",
                "Age of the oldest open transaction that has written the log; 0 if there is none.",
                measured.oldest_open_transaction_age_seconds or 0.0,
            ),
            (
                "eventlog_oldest_snapshot_age_seconds",
                "Age of the oldest database snapshot that blocks the removal of dead rows; 0 if "
                "there is none.",
                activity.oldest_snapshot_age_seconds or 0.0,
            ),
        )

    def _histogram(self, name: str, text: str, histogram: Histogram) -> Metric:
        family = HistogramMetricFamily(name, text, labels=list(self._labels), unit=_unit_of(name))
        family.add_metric(
            list(self._labels.values()), buckets=histogram.buckets(), sum_value=histogram.total
        )
        return family


class JobMetrics(Collector):
    def __init__(self, activity: JobActivity, labels: _Labels) -> None:
        self._activity, self._labels = activity, labels

    def collect(self) -> Iterable[Metric]:
        activity, labels = self._activity, self._labels
        yield _build_info(labels)
        yield from _health(activity.health(), labels, ["process_hangs"])
        for name, text, number in (
            (
                "eventlog_backlog_rows_read",
                "Rows that a backlog job has read.",
                activity.rows["converting"],
            ),
            (
                "eventlog_backlog_rows_marked",
                "Rows that a backlog job has marked.",
                activity.rows["marking"],
            ),
            (
                "eventlog_backlog_events_written",
                "Events that a backlog job has written.",
                activity.events,
            ),
        ):
            yield _counter(name, text, labels, number, activity.started)
        text = "1 for the job's present stage, 0 for all others."
        states = _one_of(STAGES, activity.stage)
        yield _numbers_by(
            GaugeMetricFamily, "eventlog_backlog_stage", text, labels, "stage", states
        )
        for name, text, figure in (
            (
                "eventlog_backlog_stage_ratio",
                "How much of the stage is done, 0 to 1.",
                activity.seen.share,
            ),
            (
                "eventlog_backlog_rows",
                "Rows that the stage has to process in all; 0 = unknown.",
                activity.seen.total,
            ),
            (
                "eventlog_last_progress_timestamp_seconds",
                "When the job last made progress.",
                activity.progress_wall,
            ),
        ):
            yield _gauge(name, text, labels, figure)
