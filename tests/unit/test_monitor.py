"""The monitor of a publisher: who may look, what is reported, and that a scrape needs no database."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from math import inf
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from eventlog.config.settings import MonitorSettings
from eventlog.errors import ConfigError, DatabaseError, ReceiverUnavailable
from eventlog.model import Answer, Document, EventResult, Level
from eventlog.publisher.context.context import Counters
from eventlog.publisher.context.observer import (
    SILENT,
    ConsumerStatus,
    Differences,
    Doing,
    Measured,
    Observer,
    ParkedObject,
    WaitFor,
    join_observers,
)
from eventlog.publisher.ledger.delivery import DeliveryInfo
from eventlog.publisher.monitor.activity import Activity, Histogram
from eventlog.publisher.monitor.openmetrics import PublisherMetrics, exposition
from eventlog.publisher.monitor.server import Monitor, parse_address, serving
from eventlog.publisher.monitor.status import (
    answer_status,
    documents_data,
    process_status,
    shape,
)
from eventlog.publisher.run.liveness import Liveness
from eventlog.sql.doctor import HeldSnapshot, TableStorage


@dataclass
class Clock:
    """A clock that moves on request."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


def parked(reason: str) -> ParkedObject:
    return ParkedObject("usr", "idu=17", 1020.0, 3, reason)


def said(level: str, message: str = "", event_id: str = "5", *, is_pending: bool = False) -> Answer:
    return Answer({event_id: EventResult(Level[level.upper()], message)}, is_pending=is_pending)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def activity(clock: Clock) -> Activity:
    return Activity(Counters(), 5, Liveness(60, 10, clock), wall=clock)


LABELS = {"log": "indirect.eventlog", "sink": "files"}


def monitor_of(
    activity: Activity, listen: str = "127.0.0.1:0", questions: Any = None, **settings: Any
) -> Monitor:
    def status() -> dict[str, Any]:
        return process_status(activity, "indirect.eventlog", "files", "xds", shows_values=False)

    metrics = PublisherMetrics(activity, LABELS)
    return Monitor(listen, activity, metrics, status, questions, MonitorSettings(**settings))


@contextmanager
def asking(monitor: Monitor) -> Iterator[Callable[..., tuple[int, dict[str, str], str]]]:
    with serving(monitor) as address:

        def ask(
            path: str, method: str = "GET", body: str | None = None, **headers: str
        ) -> tuple[int, dict[str, str], str]:
            connection = http.client.HTTPConnection(address.host, address.port, timeout=60)
            try:
                connection.request(
                    method,
                    path,
                    body,
                    {name.replace("_", "-"): value for name, value in headers.items()},
                )
                answer = connection.getresponse()
                return (
                    answer.status,
                    {key.lower(): value for key, value in answer.getheaders()},
                    answer.read().decode(),
                )
            finally:
                connection.close()

        yield ask


# --- who may look ---


def test_an_address_that_others_can_reach_needs_a_token(activity: Activity) -> None:
    with (
        pytest.raises(ConfigError, match="EVENTLOG_MONITOR_TOKEN"),
        serving(monitor_of(activity, "0.0.0.0:0")),
    ):
        pass


@pytest.mark.parametrize(
    "listen", ["9464", "host", "host:port", "user@host:1", "http://host:1", "host:1/path", ""]
)
def test_what_is_no_address_is_refused_by_name(listen: str) -> None:
    with pytest.raises(ConfigError, match="host:port"):
        parse_address(listen)


def test_addresses_have_a_host_and_a_port() -> None:
    assert parse_address("127.0.0.1:9464") == ("127.0.0.1", 9464)
    assert parse_address("[::1]:9464") == ("::1", 9464)
    assert str(parse_address("[::1]:9464")) == "[::1]:9464"


def test_an_address_that_is_taken_is_warned_of_and_the_work_goes_on(
    activity: Activity, caplog: pytest.LogCaptureFixture
) -> None:
    works = False
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        with serving(monitor_of(activity, listen)):
            works = True
    assert works
    assert f"cannot listen on monitor.listen = {listen}: Address already in use" in caplog.text


@pytest.mark.promise("option monitor.allowed_hosts")
@pytest.mark.parametrize(("hosts", "warnings"), [((), 1), (("monitor.example",), 0)])
def test_a_monitor_on_every_address_logs_at_its_start_whom_it_refuses(
    activity: Activity, caplog: pytest.LogCaptureFixture, hosts: tuple[str, ...], warnings: int
) -> None:
    with serving(monitor_of(activity, "0.0.0.0:0", token="secret", allowed_hosts=hosts)):
        pass
    assert caplog.text.count("monitor.allowed_hosts") == warnings


@pytest.mark.promise("option monitor.token")
def test_if_there_is_a_token_only_the_two_words_of_health_are_served_without_it(
    activity: Activity,
) -> None:
    activity.connected(again=False)
    with asking(monitor_of(activity, token="secret")) as ask:
        assert ask("/livez")[::2] == (200, "ok\n")
        assert ask("/readyz")[::2] == (200, "ready\n")
        for path in (
            "/metrics",
            "/status.json",
            "/history.json",
            "/errors.json",
            "/rows/1.json",
            "/app.js",
            "/",
        ):
            status, _, body = ask(path)
            assert status == 401, path
            assert "indirect" not in body
            assert "eventlog_rows" not in body
        assert ask("/metrics", Authorization="Bearer secret")[0] == 200
        assert ask("/metrics", Authorization="Bearer secre")[0] == 401
        assert ask("/metrics", Authorization="Basic secret")[0] == 401


def test_the_page_is_opened_by_a_form_and_a_cookie_that_scripts_and_other_sites_cannot_use(
    activity: Activity,
) -> None:
    with asking(monitor_of(activity, token="secret")) as ask:
        status, _, page = ask("/login", "POST", "token=wrong")
        assert status == 403
        assert '<p class="banner" role="alert">This is not the token of this monitor.</p>' in page
        assert 'role="alert" hidden>' in ask("/")[2]
        status, headers, _ = ask("/login", "POST", "token=secret")
        assert (status, headers["location"]) == (303, "/")
        cookie = headers["set-cookie"]
        assert "secret" not in cookie
        assert "httponly" in cookie.lower()
        assert "samesite=strict" in cookie.lower()
        assert ask("/", Cookie=cookie.partition(";")[0])[0] == 200
        assert ask("/status.json", Cookie=cookie.partition(";")[0])[0] == 200
        assert ask("/login", "POST", "x" * 10_000)[0] == 413


def test_a_name_of_another_host_gets_421(activity: Activity) -> None:
    with asking(monitor_of(activity, allowed_hosts=("monitor.example",))) as ask:
        assert ask("/status.json", Host="evil.example")[0] == 421
        assert ask("/", Host="evil.example:9464")[0] == 421
        assert ask("/status.json", Host="monitor.example")[0] == 200
        assert ask("/status.json", Host="localhost:9464")[0] == 200
        assert ask("/livez", Host="10.1.2.3:9464")[0] == 200


@pytest.mark.parametrize("host", ["/livez?", "/livez#", "/style.css?", "@localhost", ":1/readyz?"])
def test_no_host_header_opens_a_page_without_the_token(activity: Activity, host: str) -> None:
    with asking(monitor_of(activity, token="secret")) as ask:
        for path in ("/status.json", "/metrics", "/errors.json", "/rows/5.json", "/app.js"):
            assert ask(path, Host=f"127.0.0.1{host}")[0] in (401, 421), path


def test_a_question_is_taken_from_the_path_and_not_from_the_host_header(activity: Activity) -> None:
    class Asked:
        def errors(self) -> dict[str, Any]:
            return {"errors": []}

    with asking(monitor_of(activity, questions=Asked(), token="secret")) as ask:
        answer = ask("/errors.json", Host="127.0.0.1/queue.json?", Authorization="Bearer secret")
        assert answer[0] == 421
        assert ask("/errors.json", Authorization="Bearer secret")[0] == 200


@pytest.mark.promise("option monitor.show_values")
def test_health_with_values_is_answered_only_to_known_hosts(activity: Activity) -> None:
    activity.connected(again=False)
    foreign = {"Host": "rebound.example.org"}
    with asking(monitor_of(activity, show_values=True)) as ask:
        assert ask("/readyz", **foreign)[0] == 421
        assert ask("/readyz", Host="localhost:9464")[0] == 200
        assert ask("/livez", **foreign)[0] == 200
    with asking(monitor_of(activity, show_values=True, token="secret")) as ask:
        assert ask("/readyz", **foreign)[::2] == (200, "ready\n")  # the word, as any probe gets it
        assert ask("/readyz", Authorization="Bearer secret", **foreign)[0] == 421
    with asking(monitor_of(activity)) as ask:
        assert ask("/readyz", **foreign)[0] == 200


def test_every_page_forbids_whatever_comes_from_elsewhere(activity: Activity) -> None:
    with asking(monitor_of(activity)) as ask:
        for path in ("/", "/app.js", "/style.css", "/status.json"):
            _, headers, body = ask(path)
            assert headers["content-security-policy"].startswith(
                "default-src 'none'; script-src 'self'"
            )
            assert headers["x-content-type-options"] == "nosniff"
            assert "//" not in body.replace("http://www.w3.org/2000/svg", "").replace("// ", ""), (
                path
            )
        assert ask("/nothing")[0] == 404
        assert ask("/status.json", "POST")[0] == 405


# --- health ---


def test_a_publisher_that_gives_no_sign_is_not_alive(activity: Activity, clock: Clock) -> None:
    clock.now += 61
    with asking(monitor_of(activity)) as ask:
        assert ask("/livez")[::2] == (503, "stuck\n")
        activity.liveness.sign()
        assert ask("/livez")[0] == 200


def test_a_try_between_two_waits_is_part_of_the_waiting(activity: Activity, clock: Clock) -> None:
    activity.waits(WaitFor.RECEIVER, "connection refused", until=2000.0)
    clock.now += 500
    activity.does(Doing.PUBLISHING)  # a try
    assert activity.in_words() == (
        "The receiver has not answered for 8 minutes: connection refused. Next attempt in 8 minutes."
    )
    activity.progressed()
    assert activity.in_words() == "publishing"


def test_a_wait_is_as_long_as_the_same_party_has_not_answered(
    activity: Activity, clock: Clock
) -> None:
    activity.waits(WaitFor.DATABASE, "no connection", until=2000.0)
    clock.now += 30
    activity.waits(WaitFor.RECEIVER, "the receiver answers 401", 2000.0, "", "check sink.url")
    assert [one.name for one in activity.health().conditions] == ["receiver_misconfigured"]
    assert activity.in_words().startswith("The receiver answers 401 Unauthorized for 0 s.")


def test_it_is_ready_while_the_connection_stands(activity: Activity) -> None:
    connecting = "connecting\nwarning: connecting to the database\n"
    with asking(monitor_of(activity)) as ask:
        assert ask("/readyz")[::2] == (503, connecting)
        activity.connected(again=False)
        activity.does(Doing.RESTING)
        assert ask("/readyz")[::2] == (200, "ready\n")
        activity.disconnected()
        assert ask("/readyz")[0] == 503


def test_ready_shows_what_is_wrong_to_a_client_that_may_look(activity: Activity) -> None:
    activity.connected(again=False)
    activity.does(Doing.RESTING)
    activity.measured(Measured(refused_rows=4))
    words = "ready\nwarning: 4 rows refused by the receiver\n"
    with asking(monitor_of(activity)) as ask:
        assert ask("/readyz")[::2] == (200, words)
    with asking(monitor_of(activity, token="secret")) as ask:
        assert ask("/readyz")[::2] == (200, "ready\n")
        assert ask("/readyz", Authorization="Bearer secret")[::2] == (200, words)


# --- what is reported ---


def scrape(activity: Activity) -> dict[tuple[str, ...], float]:
    metrics = PublisherMetrics(activity, LABELS)
    families = text_string_to_metric_families(exposition(metrics)[0].decode())
    return {
        (
            sample.name,
            *(
                value
                for name, value in sorted(sample.labels.items())
                if name not in ("log", "sink")
            ),
        ): sample.value
        for family in families
        for sample in family.samples
    }


def test_a_scrape_is_open_metrics_with_what_was_counted(activity: Activity, clock: Clock) -> None:
    activity.counters.rows_read, activity.counters.answers_retry = 7, 2
    activity.waits(WaitFor.RECEIVER, "away", 1001.0)
    activity.connected(again=True)
    activity.window_read(0.02, 1)
    activity.answered(Document(1, 1, ("1", "3", "5"), b"<nds/>"), Answer(), 0.3)
    measured = Measured(100_000, 100_000, 12.5, 3.0, [parked("busy")], [DeliveryInfo(4, 10, 20)])
    activity.measured(measured)
    activity.compared(Differences(uncaptured=("hr.usr: column mail is not captured yet",)))
    clock.now += 2
    activity.measured(measured)
    values = scrape(activity)
    assert values["eventlog_rows_read_total",] == 7
    assert values["eventlog_answers_total", "retry"] == 2
    assert values["eventlog_backoffs_total", "receiver"] == 1
    assert values["eventlog_reconnects_total",] == 1
    assert values["eventlog_uncaptured_tables",] == 1
    assert values["eventlog_queue_rows",] == 100_000
    assert values["eventlog_queue_oldest_row_age_seconds",] == 12.5  # seen just now
    assert values["eventlog_objects_parked",] == 1
    assert values["eventlog_in_flight_rows",] == 20
    assert values["eventlog_oldest_delivery_age_seconds",] == 2
    assert values["eventlog_oldest_open_transaction_age_seconds",] == 3
    assert values["eventlog_send_duration_seconds_bucket", "0.25"] == 0
    assert values["eventlog_send_duration_seconds_bucket", "0.5"] == 1
    assert values["eventlog_window_seconds_count",] == 1


@pytest.mark.parametrize(
    ("accept", "media_type"),
    [
        (
            "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5",
            "application/openmetrics-text",
        ),
        ("text/plain;version=0.0.4", "text/plain"),
        ("text/html,*/*;q=0.8", "text/plain"),
        ("", "text/plain"),
    ],
)
def test_a_scrape_is_in_the_format_that_is_asked_for(
    activity: Activity, accept: str, media_type: str
) -> None:
    with asking(monitor_of(activity)) as ask:
        status, headers, body = ask("/metrics", Accept=accept)
    assert status == 200
    assert headers["content-type"].startswith(media_type)
    assert body.endswith("# EOF\n") is (media_type == "application/openmetrics-text")
    assert "eventlog_rows_read_total" in body


HELD = HeldSnapshot(
    "session",
    None,
    7,
    "app",
    "report",
    None,
    None,
    None,
    12,
    "801",
    "SELECT pg_terminate_backend(7)",
)


def test_a_snapshot_whose_age_the_database_hides_is_as_old_as_the_first_look_that_saw_it(
    activity: Activity, clock: Clock
) -> None:
    name = ("eventlog_oldest_snapshot_age_seconds",)
    activity.measured(Measured(oldest_snapshot=HELD))
    clock.now += 30
    activity.measured(Measured(oldest_snapshot=HELD._replace(transactions=99)))
    assert scrape(activity)[name] == 30
    activity.measured(Measured(oldest_snapshot=HELD._replace(xmin="802")))
    assert scrape(activity)[name] == 0
    activity.measured(Measured(oldest_snapshot=HELD._replace(seconds=5.0)))
    assert scrape(activity)[name] == 5
    activity.measured(Measured())
    assert scrape(activity)[name] == 0


def test_the_size_of_the_log_is_reported_by_table_where_the_database_reports_it(
    activity: Activity,
) -> None:
    activity.measured(Measured())
    assert not [name for name, *_ in scrape(activity) if "_table_" in name]
    log = TableStorage("log", "hr.eventlog", 10, 5, None, True, 8192)
    unknown = TableStorage("error", "hr.eventlog_error", None, None, None, None, 0)
    activity.measured(Measured(tables=[log, unknown]))
    values = scrape(activity)
    assert values["eventlog_table_bytes", "log"] == 8192
    assert values["eventlog_table_bytes", "error"] == 0
    assert {key: number for key, number in values.items() if "dead_rows" in key[0]} == {
        ("eventlog_table_dead_rows", "log"): 5
    }


def test_dead_rows_are_a_condition_once_they_have_stayed_for_a_while(
    activity: Activity, clock: Clock
) -> None:
    activity.does(Doing.RESTING)
    many = TableStorage("log", "hr.eventlog", 10, 100_000, None, True, 8192)
    for tables, seconds, names in (
        ([many], 0, set()), ([many], 901, {"dead_rows"}), ([], 1, set()), ([many], 1, set()),
    ):  # fmt: skip
        clock.now += seconds
        activity.liveness.sign()
        activity.measured(Measured(tables=tables))
        assert activity.health().names == names


def test_the_queue_is_not_reported_before_the_first_poll(activity: Activity) -> None:
    assert ("eventlog_queue_rows",) not in scrape(activity)


def test_a_histogram_counts_a_time_in_every_bucket_from_its_own_on() -> None:
    histogram = Histogram((0.1, 1.0))
    for seconds in (0.05, 0.1, 0.5, 30.0):
        histogram.observe(seconds)
    assert histogram.buckets() == [("0.1", 2), ("1", 3), ("+Inf", 4)]


def test_values_keys_and_receivers_texts_are_hidden_unless_they_are_wanted(
    activity: Activity,
) -> None:
    activity.measured(Measured(1, 100, None, parked=[parked("Alice is locked")]))
    activity.answered(Document(1, 1, ("5",), b"<nds/>"), said("retry", "Alice is locked"), 0.1)
    hidden = json.dumps(process_status(activity, "log", "http", "xds", shows_values=False))
    assert "Alice" not in hidden
    assert "idu=17" not in hidden
    shown = json.dumps(process_status(activity, "log", "http", "xds", shows_values=True))
    assert "Alice" in shown
    assert "idu=17" in shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://r: the receiver answers 503 Service Unavailable; Jack", "503 Service Unavailable"),
        ("the receiver answers 599; Jack", "599"),
    ],
)
def test_of_a_hidden_answer_its_status_is_left(text: str, shown: str) -> None:
    assert answer_status(text) == f"the receiver answers {shown}"
    assert answer_status("Jack is locked") == "•••"
    assert answer_status("") == ""


def test_parked_objects_are_grouped_by_class_and_answer_with_a_command_for_each(
    activity: Activity,
) -> None:
    failing = "the receiver answers 500 Internal Server Error"
    objects = [
        ParkedObject("usr", "idu=1", 1020.0, 3, failing, "7"),
        ParkedObject("usr", "idu=2", 1010.0, 5, f"{failing}; Jack", "8"),
        ParkedObject("usr", "idu=3", 1015.0, 1, "Alice is locked", "9"),
    ]
    activity.measured(Measured(3, 100, parked=objects))
    shown = process_status(activity, "log", "http", "xds", shows_values=False, consumer="search")
    skip = "eventlog skip --consumer search --reason 'given up on the status page'"
    assert shown["parked_groups"] == [
        {
            "class": "usr", "answer": failing, "objects": 2, "attempts": 5,
            "next_try_seconds": 10.0, "events": ["7", "8"], "command": f"{skip} 7 8",
        },
        {
            "class": "usr", "answer": "the receiver answers retry", "objects": 1, "attempts": 1,
            "next_try_seconds": 15.0, "events": ["9"], "command": f"{skip} 9",
        },
    ]  # fmt: skip


def test_the_event_id_of_a_snapshots_object_is_in_no_command_while_keys_are_hidden(
    activity: Activity,
) -> None:
    objects = [ParkedObject("usr", "idu=1", 1020.0, 3, "no", "snapshot.1.usr.idu=1")]
    activity.measured(Measured(3, 100, parked=objects))
    for shows_values, command in ((False, False), (True, True)):
        status = process_status(activity, "log", "http", "xds", shows_values=shows_values)
        assert bool(status["parked_groups"][0]["command"]) is command


def test_a_delivery_is_seen_as_soon_as_it_begins_and_until_it_has_ended(
    activity: Activity, clock: Clock
) -> None:
    activity.measured(Measured(3, 100, deliveries=[DeliveryInfo(4, 1, 2)]))
    activity.delivery_begins(DeliveryInfo(5, 1, 3), {})
    clock.now += 7
    assert scrape(activity)["eventlog_in_flight_rows",] == 5
    assert scrape(activity)["eventlog_oldest_delivery_age_seconds",] == 7
    activity.delivery_ended(5, "done")
    assert scrape(activity)["eventlog_in_flight_rows",] == 2


def test_a_delivery_that_is_sent_again_is_as_old_as_it_was(
    activity: Activity, clock: Clock
) -> None:
    for _ in range(4):
        activity.delivery_begins(DeliveryInfo(5, 2, 3), {})
        clock.now += 20
        activity.delivery_ended(5, "retry", DeliveryInfo(5, 1, 2))
        activity.measured(
            Measured(2, 100, deliveries=[DeliveryInfo(5, 1, 2)], oldest_delivery_age_seconds=3.0)
        )
    values = scrape(activity)
    assert (
        values["eventlog_oldest_delivery_age_seconds",],
        values["eventlog_in_flight_rows",],
    ) == (
        80,
        2,
    )


def test_the_oldest_row_grows_older_while_the_publisher_waits(
    activity: Activity, clock: Clock
) -> None:
    activity.measured(Measured(3, 100, 2.0))
    clock.now += 10
    assert scrape(activity)["eventlog_queue_oldest_row_age_seconds",] == 2, (
        "it may have been answered since"
    )
    activity.waits(WaitFor.RECEIVER, "away", 1100.0, "away")
    assert scrape(activity)["eventlog_queue_oldest_row_age_seconds",] == 12
    assert (
        process_status(activity, "log", "http", "xds", shows_values=False)["oldest_seconds"] == 12
    )
    activity.add_sample()
    assert activity.history[-1].oldest_seconds == 12


def test_a_delivery_that_was_there_before_has_the_age_of_its_entry(activity: Activity) -> None:
    deliveries = [DeliveryInfo(4, 1, 1), DeliveryInfo(5, 1, 1)]
    activity.measured(Measured(2, 100, deliveries=deliveries, oldest_delivery_age_seconds=82.0))
    assert scrape(activity)["eventlog_oldest_delivery_age_seconds",] == 82


def test_a_reason_is_reported_without_the_receivers_words_if_it_has_such_a_text(
    activity: Activity,
) -> None:
    activity.waits(WaitFor.RECEIVER, "http://r: 503; Jack is locked", 1010.0, "http://r: 503")
    told = process_status(activity, "log", "http", "xds", shows_values=False)["state"]
    assert told["words"] == (
        "The receiver has not answered for 0 s: http://r: 503. Next attempt in 10 s."
    )
    assert told["reason"] == "the receiver: http://r: 503"
    activity.waits(WaitFor.RECEIVER, "Jack is locked", 1010.0)
    assert (
        process_status(activity, "log", "http", "xds", shows_values=False)["state"]["reason"]
        == "the receiver"
    )
    assert (
        "Jack"
        in process_status(activity, "log", "http", "xds", shows_values=True)["state"]["words"]
    )


def test_questions_wait_for_each_other(activity: Activity) -> None:
    class Slow:
        def errors(self) -> dict[str, Any]:
            time.sleep(0.5)
            return {"errors": []}

    with asking(monitor_of(activity, questions=Slow())) as ask, ThreadPoolExecutor(4) as threads:
        answers = [threads.submit(ask, "/errors.json") for _ in range(4)]
        assert [answer.result()[0] for answer in answers] == [200] * 4


def delays(activity: Activity) -> dict[tuple[str, ...], float]:
    return {
        key: value
        for key, value in scrape(activity).items()
        if key[0].startswith("eventlog_delivery_latency_seconds")
    }


NOON = datetime(2026, 3, 1, 12, 0, 0)


def test_an_attempt_without_an_answer_is_among_the_newest_documents(activity: Activity) -> None:
    document = Document(3, 2, ("5", "6"), b"<nds/>")
    activity.attempted(document, ReceiverUnavailable("http://r: refused"), 0.25)
    (shown,) = documents_data(activity, "no answer", inf, shows_values=True)["documents"]
    assert (shown["delivery"], shown["document"], shown["events"]) == (3, 2, 2)
    assert (shown["first_id"], shown["last_id"], shown["seconds"]) == ("5", "6", 0.25)
    assert (shown["level"], shown["reason"]) == ("no answer", "http://r: refused")


def test_the_delay_is_from_event_time_to_the_answer_by_the_logs_clock(
    activity: Activity, clock: Clock
) -> None:
    assert delays(activity) == {}
    activity.measured(Measured(1, 100, clock=NOON))
    clock.now += 3
    activity.delivery_begins(DeliveryInfo(1, 2, 2), {"1": "2026-03-01 11:59:58.5", "7": None})
    activity.answered(Document(1, 1, ("1", "2"), b""), Answer(), 0.1)  # at 12:00:03 by that clock
    activity.answered(
        Document(1, 2, ("4", "5"), b""), Answer(), 0.1
    )  # whose first row is not known
    activity.answered(Document(1, 3, ("7",), b""), Answer(), 0.1)
    assert delays(activity)["eventlog_delivery_latency_seconds_sum",] == 4.5
    assert delays(activity)["eventlog_delivery_latency_seconds_count",] == 1


def test_an_event_that_must_be_sent_again_has_no_delay_yet(
    activity: Activity, clock: Clock
) -> None:
    activity.measured(Measured(1, 100, clock=NOON))
    activity.delivery_begins(DeliveryInfo(1, 2, 2), {"5": "2026-03-01 12:00:00"})
    activity.answered(Document(1, 1, ("5",), b""), said("retry"), 0.1)
    assert delays(activity)["eventlog_delivery_latency_seconds_count",] == 0
    clock.now += 60
    activity.delivery_begins(DeliveryInfo(1, 2, 2), {"5": "2026-03-01 12:00:00"})
    activity.answered(Document(1, 1, ("5",), b""), Answer(), 0.1)
    assert delays(activity)["eventlog_delivery_latency_seconds_sum",] == 60


def test_the_delay_of_a_sink_that_speaks_when_it_is_flushed_ends_there(
    activity: Activity, clock: Clock
) -> None:
    activity.measured(Measured(1, 100, clock=NOON))
    activity.delivery_begins(DeliveryInfo(1, 2, 2), {"5": "2026-03-01 12:00:00"})
    activity.answered(Document(1, 1, ("5",), b""), Answer(is_pending=True), 0.1)
    assert delays(activity)["eventlog_delivery_latency_seconds_count",] == 0
    clock.now += 2
    activity.flushed()
    activity.flushed()
    assert delays(activity)["eventlog_delivery_latency_seconds_sum",] == 2
    assert delays(activity)["eventlog_delivery_latency_seconds_count",] == 1


def test_the_receivers_answer_to_an_event_is_remembered_for_a_while(activity: Activity) -> None:
    for document, answer_ in (
        (Document(1, 1, ("4", "5", "51"), b""), said("retry", "Alice is locked")),
        (Document(2, 1, ("5.2", "6"), b""), said("warning", "done", "5.2")),
        (Document(3, 1, ("7",), b""), Answer()),
    ):
        activity.attempted(document, answer_, 0.1)
    told = activity.attempts.of("5.2")
    assert [(one.delivery, one.level, one.message) for one in told] == [
        (2, "warning", "done"), (1, "retry", "Alice is locked"),
    ]  # fmt: skip
    assert [one.level for one in activity.attempts.of("4")] == ["success"]
    assert activity.attempts.of("40") == []
    for delivery in range(10):
        event_ids = tuple(str(delivery * 10_000 + number) for number in range(10_000))
        activity.attempted(
            Document(delivery, 1, event_ids, b""),
            Answer(general=EventResult(Level.ERROR, "no")),
            0.1,
        )
    assert activity.attempts.of("5.2") == [], "old answers are forgotten"


def test_a_status_has_every_name_of_the_shape_and_no_other(activity: Activity) -> None:
    assert (
        process_status(activity, "log", "http", "xds", shows_values=False).keys() == shape().keys()
    )
    with pytest.raises(TypeError, match="colour"):
        shape(colour="red")


def test_the_curves_hold_rates_and_the_middle_time_of_a_document(
    activity: Activity, clock: Clock
) -> None:
    for seconds in (0.1, 0.2, 0.9):
        activity.answered(Document(1, 1, ("1",), b"<nds/>"), Answer(), seconds)
    activity.counters.rows_success = 50
    clock.now += 5
    activity.add_sample()
    clock.now += 5
    activity.add_sample()
    first, second = activity.history
    assert (first.rows_per_second, first.send_duration_median, first.send_duration_99) == (
        10,
        0.2,
        0.9,
    )
    assert (second.rows_per_second, second.send_duration_median) == (0, None)


def test_an_event_that_is_sent_again_is_counted_once_and_consumers_have_their_lag(
    activity: Activity, clock: Clock
) -> None:
    counters = activity.counters
    counters.events_sent, counters.answers_retry, counters.answers_success = 30, 20, 10
    of_consumer = ConsumerStatus("search", True, "latest", datetime(2026, 3, 1),
                                 7, 5.0, 0, 7, 7, None, 0.0, 0, None)  # fmt: skip
    activity.measured(Measured(0, 100, consumers=[of_consumer]))
    clock.now += 5
    activity.add_sample()
    (sample,) = activity.history
    assert (sample.events_per_second, dict(sample.consumers)) == (2.0, {"search": 7})


def test_the_curves_end_after_an_hour(activity: Activity) -> None:
    for _ in range(1000):
        activity.add_sample()
    assert len(activity.history) == 720


def test_history_gives_what_is_newer(activity: Activity, clock: Clock) -> None:
    activity.add_sample()
    clock.now += 5
    activity.add_sample()
    with asking(monitor_of(activity)) as ask:
        assert len(json.loads(ask("/history.json?since=1000")[2])["samples"]) == 1
        assert ask("/history.json?since=x")[0] == 400


def test_what_the_database_refuses_is_reported_with_its_code(activity: Activity) -> None:
    class Refusing:
        def errors(self) -> dict[str, Any]:
            raise DatabaseError("canceling statement due to statement timeout")

    with asking(monitor_of(activity, questions=Refusing())) as ask:
        status, _, body = ask("/errors.json")
        assert (status, json.loads(body)["error"]) == (
            502,
            "canceling statement due to statement timeout",
        )


@pytest.mark.parametrize("before", ["snapshot.20260101000000.usr.idu=1", "x", "9" * 20])
def test_a_list_begins_only_before_a_record_id(activity: Activity, before: str) -> None:
    with asking(monitor_of(activity)) as ask:
        assert ask(f"/rows.json?before={before}")[0] == 400


def test_a_list_that_a_source_does_not_have_is_not_found(activity: Activity) -> None:
    with asking(monitor_of(activity, questions=object())) as ask:
        assert ask("/queue.json")[0] == 404


def test_several_observers_get_every_report() -> None:
    told = []

    class Listener(Observer):
        def answered(self, document: Document, answer: Answer, seconds: float) -> None:
            told.append((self, document, seconds))

        def disconnected(self) -> None:
            told.append((self,))

        def measure_due(self) -> float | None:
            return 3.0

    one, other = Listener(), Listener()
    both = join_observers(join_observers(one, SILENT, Observer()), other)
    document = Document(1, 1, b"", ())
    both.answered(document, Answer(), seconds=0.5)
    both.disconnected()
    assert told == [(one, document, 0.5), (other, document, 0.5), (one,), (other,)]
    assert (both.measure_due(), both.wants_deliveries) == (3.0, False)
    assert join_observers(SILENT, SILENT) is SILENT


def test_a_look_that_takes_long_comes_less_often(activity: Activity, clock: Clock) -> None:
    activity.measured(Measured(1, 100, seconds=0.01))
    assert activity.measure_due() == 5
    activity.measured(Measured(1, 100, seconds=0.1))
    assert activity.measure_due() == 10
    clock.now += 9
    assert activity.measure_due() == 1


def test_a_rest_reports_what_is_left_in_the_queue(activity: Activity, clock: Clock) -> None:
    activity.does(Doing.RESTING)
    assert activity.in_words() == "resting: the queue is empty"
    clock.now += 1
    activity.measured(Measured(2, 100))
    assert activity.in_words() == "resting: 2 rows wait"
    activity.left(1, 1)
    assert activity.in_words() == "resting: 1 object parked"
    activity.left(0, 0)
    activity.window_read(0.01, 2)
    clock.now += 1
    activity.does(Doing.RESTING)
    assert activity.in_words() == "resting", "what the last look saw may be published since"


def test_a_wait_without_a_reason_names_for_whom_alone(activity: Activity) -> None:
    activity.waits(WaitFor.RECEIVER, "", 1010.0)
    assert activity.in_words() == "The receiver has not answered for 0 s. Next attempt in 10 s."


def test_a_look_at_an_empty_queue_is_part_of_the_rest(activity: Activity, clock: Clock) -> None:
    activity.does(Doing.RESTING)
    clock.now += 30
    activity.does(Doing.PUBLISHING)
    activity.window_read(0.01, 0)
    activity.does(Doing.RESTING)
    assert activity.state[:4] == (Doing.RESTING, 1000, "", None)
    activity.does(Doing.PUBLISHING)
    activity.window_read(0.01, 3)
    assert activity.state.doing is Doing.PUBLISHING
