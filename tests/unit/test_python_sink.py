"""A Python function as the receiver (spec/event-log.md 8.4)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from eventlog.errors import ConfigError, FatalAnswer, ReceiverUnavailable
from eventlog.model import Answer, Document, Event, EventResult, Level, Operation
from eventlog.publisher.sinks.python import CallableSink, load_callable

EVENTS = tuple(Event(Operation.DELETE, "usr", f"idu={name},table=usr", name) for name in ("1", "2"))
DOCUMENT = Document(12, 3, ("1", "2"), b"<nds/>\n", make_events=lambda: EVENTS)
XDS = '<nds dtdversion="2.0"><output><status level="error" event-id="2">nö</status></output></nds>'


def sink(receive: Callable[[str, Sequence[Event]], object]) -> CallableSink:
    return CallableSink(receive, "hr:receive")  # type: ignore[arg-type]


@pytest.mark.promise("sink python")
def test_function_gets_the_document_and_its_events() -> None:
    called: list[tuple[str, Sequence[Event]]] = []
    receiver = sink(lambda text, events: called.append((text, events)))
    assert receiver.send(DOCUMENT) == Answer()
    receiver.flush()
    receiver.close()
    assert called == [(b"<nds/>\n", EVENTS)]


@pytest.mark.parametrize(
    ("returned", "verdict"),
    [
        (None, EventResult(Level.SUCCESS)),
        (XDS, EventResult(Level.ERROR, "nö")),
        (XDS.encode(), EventResult(Level.ERROR, "nö")),
        (f'<?xml version="1.0" encoding="utf-8"?>{XDS}', EventResult(Level.ERROR, "nö")),
        (Answer({"2": EventResult(Level.RETRY)}), EventResult(Level.RETRY)),
        (Answer(general=EventResult(Level.FATAL, "out")), EventResult(Level.FATAL, "out")),
    ],
)
def test_what_the_function_returns_is_the_answer(returned: object, verdict: EventResult) -> None:
    assert sink(lambda *_: returned).send(DOCUMENT).result("2") == verdict


def test_a_text_that_the_function_returns_is_shown_as_its_answer() -> None:
    reply = sink(lambda *_: XDS).send(DOCUMENT).reply
    assert reply is not None
    assert reply.text == XDS


@pytest.mark.parametrize(
    "returned", [XDS.replace('"2"', '"9"'), Answer({"9": EventResult(Level.ERROR)})]
)
def test_event_ids_that_were_not_sent_are_named(returned: object) -> None:
    answer = sink(lambda *_: returned).send(DOCUMENT)
    assert (answer.unknown_ids, answer.result("2").level) == (("9",), Level.SUCCESS)


def of_halves(*results: tuple[str, str]) -> str:
    told = "".join(f'<status level="{level}" event-id="{name}"/>' for name, level in results)
    return f'<nds dtdversion="2.0"><output>{told}</output></nds>'


@pytest.mark.parametrize(
    ("returned", "level", "unknown"),
    [
        (Answer({"2.2": EventResult(Level.RETRY)}), Level.RETRY, ()),
        (
            Answer({"2": EventResult(Level.RETRY), "2.2": EventResult(Level.ERROR)}),
            Level.RETRY,
            (),
        ),
        (Answer({"2": EventResult(Level.SUCCESS)}), Level.SUCCESS, ()),
        (Answer({"1.2": EventResult(Level.ERROR)}), Level.SUCCESS, ("1.2",)),
        (of_halves(("2", "success"), ("2.2", "warning")), Level.WARNING, ()),
        (of_halves(("1.2", "error")), Level.SUCCESS, ("1.2",)),
    ],
)
def test_the_worse_result_of_two_events_counts_if_the_format_has_them_as_one(
    returned: object, level: Level, unknown: tuple[str, ...]
) -> None:
    add = Event(Operation.ADD, "usr", "idu=3,table=usr", "2.2")
    document = DOCUMENT._replace(make_events=lambda: (*EVENTS, add))
    answer = sink(lambda *_: returned).send(document)
    assert (answer.result("2").level, answer.unknown_ids) == (level, unknown)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("", "hr:receive: the receiver's answer is empty"),
        ("OK", "hr:receive: the receiver's answer cannot be read"),
        (b"<html/>", "hr:receive: the receiver's answer is not an XDS answer"),
        ("\ud800", "hr:receive: the receiver's answer cannot be read"),
        (True, "hr:receive returned bool; return None, str, bytes or Answer"),
        ({}, "hr:receive returned dict"),
    ],
)
def test_what_is_no_answer_means_that_the_receiver_is_unavailable(
    returned: object, message: str
) -> None:
    with pytest.raises(ReceiverUnavailable) as caught:
        sink(lambda *_: returned).send(DOCUMENT)
    assert str(caught.value).startswith(message)
    assert caught.value.is_suspicious


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("no such\n container"), "hr:receive raised ValueError: no such container ("),
        (KeyError("x"), "hr:receive raised KeyError: 'x' ("),
        (TimeoutError(), "hr:receive raised TimeoutError ("),
        (FatalAnswer("out"), "hr:receive raised FatalAnswer: out ("),
    ],
)
def test_exception_of_the_function_means_that_the_receiver_is_unavailable(
    error: Exception, message: str
) -> None:
    def receive(_body: bytes, _events: Sequence[Event]) -> None:
        raise error

    with pytest.raises(ReceiverUnavailable) as caught:
        sink(receive).send(DOCUMENT)
    assert str(caught.value).startswith(message)
    assert f"{__file__}, line " in str(caught.value)
    assert caught.value.__cause__ is error
    assert caught.value.is_suspicious


def test_function_with_other_parameters_is_unavailable() -> None:
    with pytest.raises(ReceiverUnavailable, match=r"raised TypeError: .* positional argument"):
        sink(lambda _text: None).send(DOCUMENT)  # type: ignore[arg-type, misc]


def test_receiver_away_of_the_function_is_passed_on() -> None:
    def receive(_body: bytes, _events: Sequence[Event]) -> None:
        raise away

    away = ReceiverUnavailable("closed for lunch")
    with pytest.raises(ReceiverUnavailable) as caught:
        sink(receive).send(DOCUMENT)
    assert caught.value is away
    assert not away.is_suspicious


MODULES = {
    "el_receivers/__init__.py": "",
    "el_receivers/hr.py": """
from eventlog.model import Answer

sent = []

def receive(text, events):
    sent.append(text)

class Room:
    def receive(self, text, events):
        return Answer()

    def __call__(self, text, events):
        return None

room = Room()

async def later(text, events):
    pass
""",
    "el_missing.py": "import el_nowhere.to_be_found\n",
    "el_broken.py": "\nx = 1 / 0\n",
    "el_syntax.py": "def receive(:\n",
}


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name, text in MODULES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("el_")]:
        del sys.modules[name]


@pytest.mark.parametrize(
    "target", ["el_receivers.hr:receive", "el_receivers.hr:room", "el_receivers.hr:room.receive"]
)
def test_function_is_found_by_its_name(target: str, directory: Path) -> None:
    loaded = load_callable(target, directory)
    assert loaded.target == target
    assert loaded.send(DOCUMENT) == Answer()


def test_directory_is_searched_last_and_once(directory: Path) -> None:
    (directory / "json.py").write_text("def receive(text, events): pass\n")
    for _ in range(2):
        load_callable("el_receivers.hr:receive", directory)
    assert sys.path[-1] == str(directory)
    assert sys.path.count(str(directory)) == 1
    with pytest.raises(ConfigError, match=r"json \(.*\) has no receive"):
        load_callable("json:receive", directory)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("el_receivers.hr", "must be module:function"),
        ("el_receivers.hr:", "must be module:function"),
        (":receive", "must be module:function"),
        ("el_receivers/hr.py:receive", "must be module:function"),
        ("a:b:c", "must be module:function"),
        ("..hr:receive", "must be module:function"),
        ("el_absent:receive", "module el_absent is neither installed nor in {directory}"),
        (
            "el_receivers.it:receive",
            "module el_receivers.it is neither installed nor in {directory}",
        ),
        ("el_absent.hr:receive", "module el_absent is neither installed nor in {directory}"),
        (
            "el_missing:receive",
            "importing el_missing raised ModuleNotFoundError: No module named 'el_nowhere'",
        ),
        (
            "el_broken:receive",
            "importing el_broken raised ZeroDivisionError: division by zero "
            "({directory}/el_broken.py, line 2)",
        ),
        (
            "el_syntax:receive",
            "importing el_syntax raised SyntaxError: invalid syntax (el_syntax.py, line 1)",
        ),
        (
            "el_receivers.hr:recieve",
            "el_receivers.hr ({directory}/el_receivers/hr.py) has no recieve",
        ),
        ("el_receivers.hr:room.door", "el_receivers.hr.room has no door"),
        ("el_receivers.hr:sent", "is a list and cannot be called"),
        ("el_receivers.hr:later", "is a coroutine"),
    ],
)
def test_what_cannot_be_called_is_refused_at_the_start(
    target: str, message: str, directory: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_callable(target, directory)
    assert str(caught.value).startswith(f"sink.function {target!r}")
    assert message.format(directory=directory) in str(caught.value)


def test_module_that_is_not_installed_is_named_without_a_directory_too() -> None:
    with pytest.raises(
        ConfigError, match=r"'el_absent:receive': module el_absent is not installed"
    ):
        load_callable("el_absent:receive")
