"""The metrics of a publisher in OpenMetrics (docs/monitor.md, "Metrics", which is made of them).

Everything is taken from what the publisher has told already: a scrape asks the database nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from eventlog import __version__
from eventlog.publisher.monitor.activity import Activity, Histogram
from eventlog.publisher.observer import Doing

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST


class Labels(NamedTuple):
    """What every metric is labelled with: the log, or the source that is followed, and the type of the sink."""

    log: str
    sink: str


_COUNTERS: Final = (
    ("rows_read", "eventlog_rows_read", "Rows read of the log, or changes of a source."),
    ("rows_published", "eventlog_rows_published", "Rows whose event got an answer other than retry."),
    ("rows_bad", "eventlog_rows_bad", "Rows that failed a check: status E, with a line in the error table."),
    ("rows_loopback", "eventlog_rows_loopback", "Rows of the publisher's own database user."),
    ("rows_dropped", "eventlog_rows_dropped", "Rows that precedence dropped in favour of a query-back."),
    ("rows_gone", "eventlog_rows_gone", "Rows whose object was gone when it was read back."),
    ("rows_empty", "eventlog_rows_empty", "Rows that changed nothing that is written."),
    ("events_sent", "eventlog_events_sent", "Events sent, those that are sent again included."),
    ("documents_sent", "eventlog_documents_sent", "Documents sent, heartbeats not included."),
    ("heartbeats_sent", "eventlog_heartbeats_sent", "Heartbeats sent."),
)
_LEVELS: Final = ("success", "warning", "error", "retry", "fatal")


def exposition(metrics: Collector) -> bytes:
    """The text of a scrape."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(metrics)
    text: bytes = generate_latest(registry)  # type: ignore[no-untyped-call]
    return text


def unit_of(name: str) -> str:
    """The unit that the name of a metric ends with, empty if it names none."""
    last = name.rpartition("_")[2]
    return last if last in ("seconds", "ratio") else ""


def build_info(names: list[str], values: list[str]) -> Metric:
    """Which version runs."""
    build = InfoMetricFamily("eventlog_build", "The version that runs.", labels=names)
    build.add_metric(values, {"version": __version__})
    return build


class PublisherMetrics(Collector):
    """The metrics of a publisher."""

    def __init__(self, activity: Activity, labels: Labels) -> None:
        self._activity, self._labels = activity, labels

    def collect(self) -> Iterable[Metric]:
        """All metrics, made of what is known now."""
        activity, names, values = self._activity, list(Labels._fields), list(self._labels)
        yield build_info(names, values)
        for field, name, text in _COUNTERS:
            counter = CounterMetricFamily(name, text, labels=names)
            counter.add_metric(values, getattr(activity.counters, field), created=activity.started)
            yield counter
        answers = CounterMetricFamily("eventlog_answers", "Answers to events, by level.", labels=[*names, "level"])
        for level in _LEVELS:
            answers.add_metric([*values, level], getattr(activity.counters, f"answers_{level}"))
        yield answers
        back_offs = CounterMetricFamily(
            "eventlog_back_offs", "Waits before another try, by what is waited for.", labels=[*names, "who"]
        )
        for who, times in activity.back_offs.items():
            back_offs.add_metric([*values, who], times)
        yield back_offs
        reconnects = CounterMetricFamily(
            "eventlog_reconnects", "How often the connection to the database was made again.", labels=names
        )
        reconnects.add_metric(values, activity.reconnects)
        yield reconnects
        for name, text, number in self._gauges():
            gauge = GaugeMetricFamily(name, text, labels=names, unit=unit_of(name))
            gauge.add_metric(values, number)
            yield gauge
        state = GaugeMetricFamily("eventlog_state", "1 for what the publisher does now.", labels=[*names, "state"])
        for doing in Doing:
            state.add_metric([*values, doing.value], float(activity.state.doing is doing))
        yield state
        for name, text, histogram in (
            ("eventlog_window_seconds", "Time to read and fold a window of the queue.", activity.windows),
            ("eventlog_envelope_seconds", "Time from sending an envelope to its answer.", activity.envelopes),
        ):
            yield _family(name, text, histogram, names, values)
        if activity.looked_at is not None and activity.looked_at.clock is not None:
            text = "Time from event_time to the answer, of the first row of each envelope."
            yield _family("eventlog_delay_seconds", text, activity.delays, names, values)

    def _gauges(self) -> Iterator[tuple[str, str, float]]:
        activity = self._activity
        now = activity.clock()
        yield (
            "eventlog_last_progress_timestamp_seconds",
            "When a cycle last ended well, or an answer other than retry came.",
            activity.wall() - (now - activity.progress_time),
        )
        yield "eventlog_ready", "1 if the publisher is connected and holds the lock of its log.", activity.is_ready
        looked = activity.looked_at
        if looked is None:
            return
        if looked.queue_rows is not None:
            yield "eventlog_queue_rows", f"Rows N; {looked.cap} stands for so many or more.", looked.queue_rows
            yield (
                "eventlog_queue_oldest_seconds",
                "Age of the first row N by event_time; 0 if there is none.",
                looked.oldest_seconds or 0.0,
            )
        yield "eventlog_objects_parked", "Objects whose event the receiver asked for later.", len(looked.parked)
        yield (
            "eventlog_in_flight_rows",
            "Rows that are recorded in flight.",
            sum(flight.rows for flight in looked.flights),
        )
        yield (
            "eventlog_oldest_flight_seconds",
            "Age of the oldest flight that is not done; 0 if there is none.",
            max((activity.flight_seconds(flight.number) for flight in looked.flights), default=0.0),
        )
        yield (
            "eventlog_oldest_writer_seconds",
            "Age of the oldest open transaction that has written the log; 0 if there is none.",
            looked.oldest_writer_seconds or 0.0,
        )


def _family(name: str, text: str, histogram: Histogram, names: list[str], values: list[str]) -> Metric:
    family = HistogramMetricFamily(name, text, labels=names, unit=unit_of(name))
    family.add_metric(values, buckets=histogram.buckets(), sum_value=histogram.total)
    return family
