"""What a package hands over is checked where it enters: a wrong result is one line with the package
and the line of its method, and no traceback (docs/developers/extend.md).
"""

from __future__ import annotations

from pathlib import Path

import pytest
from installed_package import Install
from shared import Run

from eventlog.errors import WrongResult
from eventlog.linter.codec import row_codec
from eventlog.linter.dispatch_tables import TableAttrs
from eventlog.linter.reader import values_of
from eventlog.model import Answer, Document
from eventlog.publisher.sinks.python import CallableSink

SOURCE = """
from eventlog.core.options import option, TEXT
from eventlog.model import Change, ChangeOp
from eventlog.publisher.stream import *
from eventlog.publisher.stream import Read, Mark, Failure, Described, Backlog

class Acme(Source):
    name = "acme"
    title = "ACME's changes"
    {attributes}
    def open(self, options, reader, report):
        return {opened}

class Changes:
    def steps(self, token{once}):
        {steps}
    def backlog(self, token):
        return {backlog}

CHANGE = Change("app", "item", ChangeOp.INSERT, (("id", 1),), None, dict(id=1))
"""
GOOD = {
    "attributes": "gives = frozenset()",
    "opened": "Changes()",
    "once": ", *, once",
    "steps": "yield Read(CHANGE, '1'); yield Mark(1)",
    "backlog": "None",
}


def publish(install: Install, directory: Path, run: Run, **parts: str) -> tuple[int, str, str]:
    """Run ``publish --once`` and ``status`` on a source whose text has these parts, and return the
    exit code, the output of status, and the last line of standard error of publish.
    """
    text = SOURCE.format(**{**GOOD, **parts})
    install("acme-src", "acme_src", text, sources="acme = acme_src:Acme")
    config = directory / "eventlog.toml"
    config.write_text(
        f'[source]\ntype = "acme"\nposition_url = "sqlite:///{directory}/position.db"\n'
        '[sink]\ntype = "stdout"\n[format]\ntype = "cloudevents"\n'
    )
    code, _, err = run("-c", str(config), "publish", "--once")
    status = run("-c", str(config), "status")
    assert "Traceback" not in err + status[1] + status[2]
    return code, status[1] + status[2], "".join(err.splitlines()[-1:])


@pytest.mark.promise("command publish")
def test_a_source_that_keeps_its_promises_is_published(
    install: Install, tmp_path: Path, run: Run
) -> None:
    code, status, _ = publish(install, tmp_path, run)
    assert (code, "position: 1" in status) == (0, True)


@pytest.mark.promise("code error-plugin")
@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ({"steps": "yield 5"}, "Changes.steps yielded a value of type int; Read, Failure, Mark or "
         "Described is needed (acme_src, line 15)"),
        ({"steps": "yield None"}, "Changes.steps yielded None; Read, Failure"),
        ({"steps": "yield (CHANGE, '1')"}, "Changes.steps yielded a value of type tuple"),
        ({"steps": "return None"}, "Changes.steps returned None; an iterator of steps is needed"),
        ({"steps": "yield Read(5, '1')"}, "yielded Read with a value of type int; an "
         "eventlog.Change is needed"),
        ({"steps": "yield Read(CHANGE, 1)"}, "a step with a value of type int as event-id; a text "
         "of 1 to 255 characters is needed"),
        ({"steps": "yield Read(CHANGE, 'x' * 256)"}, "xxx' as event-id; a text of 1 to 255"),
        ({"steps": "yield Mark(object())"}, "yielded Mark with a token that JSON cannot hold: "
         "Object of type object is not JSON serializable"),
        ({"steps": "yield Failure('1', 5, 'no')"}, "yielded Failure with a value of type int"),
        ({"steps": "yield Described(None, 'item')"}, "yielded Described with a value of type str"),
        ({"once": ""}, "Changes.steps cannot be called: Changes.steps() got an unexpected keyword "
         "argument 'once' (acme_src, line 15)"),
        ({"opened": "5"}, "Acme.open returned a value of type int, which has no method steps "
         "(acme_src, line 11)"),
        ({"opened": "None"}, "Acme.open returned None, which has no method steps"),
    ],
)  # fmt: skip
def test_a_wrong_step_of_a_source_is_named_with_its_package_and_line(
    install: Install, tmp_path: Path, run: Run, parts: dict[str, str], problem: str
) -> None:
    code, _, err = publish(install, tmp_path, run, **parts)
    assert code == 1
    assert err.startswith("eventlog: the package acme-src (source acme) failed: ")
    assert problem in err
    assert err.endswith("[plugin]")


@pytest.mark.parametrize(
    ("backlog", "problem"),
    [
        ("'many'", "Changes.backlog returned a value of type str; Backlog or None is needed "
         "(acme_src, line 17)"),
        ("(1, 'rows')", "Changes.backlog returned a value of type tuple; Backlog or None"),
        ("Backlog('1', 'rows')", "an integer, and one of bytes, rows, messages is needed"),
        ("Backlog(1, 'lumps')", "an integer, and one of bytes, rows, messages is needed"),
    ],
)  # fmt: skip
def test_a_wrong_backlog_does_not_end_status(
    install: Install, tmp_path: Path, run: Run, backlog: str, problem: str
) -> None:
    code, status, _ = publish(install, tmp_path, run, backlog=backlog)
    assert code == 0
    assert (
        "what follows the position is unknown: the package acme-src (source acme) failed: "
        in status
    )
    assert problem in status


@pytest.mark.parametrize(
    ("attributes", "why"),
    [
        ("gives = ['times']", "its attribute `gives` is ['times']; a set of "
         "eventlog.publisher.stream.Gives is needed"),
        ("title = None", "its attribute `title` is None; a text is needed"),
        ("options = dict", "it has no dataclass of options"),
    ],
)  # fmt: skip
def test_a_source_with_wrong_attributes_cannot_be_used(
    install: Install, tmp_path: Path, run: Run, attributes: str, why: str
) -> None:
    code, _, err = publish(install, tmp_path, run, attributes=attributes)
    assert code == 2
    assert f"source 'acme' of the package acme-src cannot be used: {why}; fix or remove it" in err


# --- formats --------------------------------------------------------------------------------------

FORMAT = """
from eventlog.changes.change_writer import ChangeWriter
from eventlog.changes.format import Format

class Writer(ChangeWriter):
    media_type = "text/plain"
    def piece_of(self, change, event_id, object_class):
        return b"x"
    {writer}

class Acme(Format):
    name = "acme"
    title = "what ACME sends"
    {format}

FORMAT = Acme()
"""
BODY = "def body(self, pieces): return b''.join(pieces)"
PUBLISH = "def publish(self, options, publishing): return Writer(publishing)"
CHANGES = (
    '{"schema": "app", "table": "item", "op": "INSERT", "key": [["id", 1]], "after": {"id": 1}}\n'
)


def test_a_format_that_keeps_its_promises_is_written(
    install: Install, tmp_path: Path, run: Run
) -> None:
    text = FORMAT.format(writer=BODY, format=PUBLISH)
    install("acme-fmt", "acme_fmt", text, formats="acme = acme_fmt:FORMAT")
    (tmp_path / "in.jsonl").write_text(CHANGES)
    arguments = ("convert", "--from", "jsonl", "--to", "acme", str(tmp_path / "in.jsonl"))
    assert run(*arguments, str(tmp_path / "out"))[0] == 0
    assert (tmp_path / "out").read_bytes() == b"x"


@pytest.mark.parametrize(
    ("writer", "format", "problem"),
    [
        (BODY, "def publish(self, publishing): return Writer(publishing)",
         "Acme.publish cannot be called: Acme.publish() takes 2 positional arguments but 3 were "
         "given (acme_fmt, line 14)"),
        (BODY, "def publish(self, options, publishing): return 5",
         "Acme.publish returned a value of type int; an "
         "eventlog.changes.publishing.EventWriter is needed (acme_fmt, line 14)"),
        (BODY, "def publish(self, options, publishing): return None",
         "Acme.publish returned None; an eventlog.changes.publishing.EventWriter is needed"),
        (BODY, "def publish(self, options, publishing): 1 / 0",
         "ZeroDivisionError: division by zero (acme_fmt, line 14)"),
        ("def body(self, pieces): return 'x'", PUBLISH,
         "Writer.body returned a value of type str; bytes is needed (acme_fmt, line 9)"),
        ("def body(self, pieces): return (piece for piece in pieces)", PUBLISH,
         "Writer.body returned a value of type generator; bytes is needed"),
        ("pass", PUBLISH, "TypeError: Can't instantiate abstract class Writer"),
        (f"needs = ['times']\n    {BODY}", PUBLISH,
         "Acme.publish returned a writer whose attribute `needs` is ['times']; it must be a set of "
         "eventlog.changes.publishing.Need"),
    ],
)  # fmt: skip
def test_a_wrong_writer_of_a_format_is_named_with_its_package_and_line(
    install: Install, tmp_path: Path, run: Run, writer: str, format: str, problem: str
) -> None:
    text = FORMAT.format(writer=writer, format=format)
    install("acme-fmt", "acme_fmt", text, formats="acme = acme_fmt:FORMAT")
    (tmp_path / "in.jsonl").write_text(CHANGES)
    arguments = ("convert", "--from", "jsonl", "--to", "acme", str(tmp_path / "in.jsonl"))
    code, _, err = run(*arguments, str(tmp_path / "out"))
    line = err.splitlines()[-1]
    assert (code, "Traceback" in err) == (1, False)
    assert line.startswith("eventlog: the package acme-fmt (format acme) failed: ")
    assert problem in line


@pytest.mark.parametrize(
    ("read", "problem"),
    [
        ("return None", "Acme.read_changes returned None; an iterator of changes is needed"),
        ("yield 5", "returned a value of type int; an iterator of changes is needed"),
        ("yield ('app', 'item')", "returned a value of type tuple; an iterator of changes"),
        ("raise KeyError('no')", "KeyError: 'no' (acme_fmt, line 14)"),
    ],
)
def test_a_wrong_change_of_a_format_is_named_with_its_package_and_line(
    install: Install, tmp_path: Path, run: Run, read: str, problem: str
) -> None:
    reads = f"def read_changes(self, source, report): {read}"
    text = FORMAT.format(writer=BODY, format=reads)
    install("acme-fmt", "acme_fmt", text, formats="acme = acme_fmt:FORMAT")
    (tmp_path / "in").write_text("")
    for command in (["convert", "--to", "jsonl"], ["decode"]):
        out = [str(tmp_path / "out")] if command[0] == "convert" else []
        code, _, err = run(*command, "--from", "acme", str(tmp_path / "in"), *out)
        line = err.splitlines()[-1]
        assert (code, "Traceback" in err) == (1, False)
        assert line.startswith("eventlog: the package acme-fmt (format acme) failed: ")
        assert problem in line


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("read_changes(self, a, options, report)", ["--from", "acme", "--to", "jsonl"]),
        ("write_changes(self, changes, target)", ["--from", "jsonl", "--to", "acme"]),
    ],
)
def test_a_method_of_a_format_with_other_arguments_is_named_with_its_package_and_line(
    install: Install, tmp_path: Path, run: Run, method: str, arguments: list[str]
) -> None:
    text = FORMAT.format(writer=BODY, format=f"def {method}: return iter([])")
    install("acme-fmt", "acme_fmt", text, formats="acme = acme_fmt:FORMAT")
    (tmp_path / "in").write_text(CHANGES)
    code, _, err = run("convert", *arguments, str(tmp_path / "in"), str(tmp_path / "out"))
    name = method.partition("(")[0]
    assert (code, "Traceback" in err) == (1, False)
    assert err.splitlines()[-1].startswith(
        f"eventlog: the package acme-fmt (format acme) failed: Acme.{name} cannot be called: "
    )
    assert "(acme_fmt, line 14)" in err


@pytest.mark.parametrize(
    ("attribute", "why"),
    [
        ("endings = '.acme'", "its attribute `endings` is '.acme'; a mapping with lines and "
         "documents is needed"),
        ("reader_options = dict", "a tuple of dataclasses of options is needed"),
        ("publish_options = 5", "its attribute `publish_options` is 5; a dataclass of options"),
        ("loses = {'user'}", "a set of eventlog.changes.losses.Loss is needed"),
    ],
)  # fmt: skip
def test_a_format_with_wrong_attributes_cannot_be_used(
    install: Install, tmp_path: Path, run: Run, attribute: str, why: str
) -> None:
    text = FORMAT.format(writer=BODY, format=f"{attribute}\n    {PUBLISH}")
    install("acme-fmt", "acme_fmt", text, formats="acme = acme_fmt:FORMAT")
    code, _, err = run("convert", "--from", "jsonl", "--to", "acme", "in", "out")
    assert code == 2
    assert "format 'acme' of the package acme-fmt cannot be used: " in err
    assert why in err


@pytest.mark.promise("option format.type")
@pytest.mark.parametrize(
    ("method", "problem"),
    [
        ("def refusal(self, options, publishing): return 'no'",
         "Acme.refusal returned a value of type str; None, or an option and the reason is needed"),
        ("def refusal(self, options, publishing): return ('type', 5)",
         "Acme.refusal returned ('type', 5); an option and the reason are needed"),
        ("def values(self, options, shared): return None",
         "Acme.values returned None; an eventlog.core.values.ValueOptions is needed"),
        ("def ignored(self, options): return None",
         "Acme.ignored cannot be called: Acme.ignored() takes 2 positional arguments but 3"),
    ],
)  # fmt: skip
def test_a_wrong_answer_of_a_format_about_its_options_is_named(
    install: Install, tmp_path: Path, run: Run, method: str, problem: str
) -> None:
    text = FORMAT.format(writer=BODY, format=f"{PUBLISH}\n    {method}")
    install("acme-fmt", "acme_fmt", text, formats="acme = acme_fmt:FORMAT")
    install("acme-src", "acme_src", SOURCE.format(**GOOD), sources="acme = acme_src:Acme")
    url = f"sqlite:///{tmp_path}/position.db"
    settings = {"source.type": "acme", "source.position_url": url, "format.type": "acme"}
    given = [f"--set={name}={value}" for name, value in settings.items()]
    code, _, err = run(*given, "--set=sink.type=stdout", "publish", "--once")
    assert (code, "Traceback" in err) == (1, False)
    assert "the package acme-fmt (format acme) failed: " in err
    assert problem in err


# --- sinks ----------------------------------------------------------------------------------------

SINK = """
from dataclasses import dataclass
from eventlog.core.options import TEXT, option
from eventlog.model import Answer, EventResult, Level
from eventlog.publisher.sinks import Sink

@dataclass(frozen=True)
class Options:
    queue: str | None = option(None, TEXT, "name of the queue", example="changes")

class Acme(Sink):
    name = "acme"
    title = "ACME's queue"
    options = Options
    {sink}
"""
SEND = "def send(self, document): return Answer()"


def through_sink(
    install: Install, directory: Path, run: Run, sink: str, *command: str
) -> tuple[int, str]:
    """Publish one change to a sink of this text, and return the exit code and standard error."""
    install("acme-snk", "acme_snk", SINK.format(sink=sink), sinks="acme = acme_snk:Acme")
    install("acme-src", "acme_src", SOURCE.format(**GOOD), sources="acme = acme_src:Acme")
    config = directory / "eventlog.toml"
    config.write_text(
        f'[source]\ntype = "acme"\nposition_url = "sqlite:///{directory}/position.db"\n'
        '[sink]\ntype = "acme"\n[format]\ntype = "cloudevents"\n'
    )
    code, out, err = run("-c", str(config), *(command or ("publish", "--once")))
    assert "Traceback" not in out + err
    return code, out + err


def test_a_sink_that_keeps_its_promises_gets_the_changes(
    install: Install, tmp_path: Path, run: Run
) -> None:
    assert through_sink(install, tmp_path, run, SEND)[0] == 0


@pytest.mark.parametrize(
    ("sink", "problem"),
    [
        ("def send(self, document): return None",
         "Acme.send returned None; an eventlog.Answer is needed (acme_snk, line 15)"),
        ("def send(self, document): return 'ok'",
         "Acme.send returned a value of type str; an eventlog.Answer is needed"),
        ("def send(self, document): return Answer({'1': 'error'})",
         "Acme.send returned a value of type str as a result; an eventlog.EventResult is needed"),
        ("def send(self, document): return Answer({1: EventResult(Level.ERROR, 'no')})",
         "Acme.send returned a result for a value of type int; the text of an event-id is needed"),
        ("def send(self, document): return Answer(['1'])",
         "returned a value of type list; an answer with a mapping of event-ids to results"),
        ("def send(self, document): return Answer(retry_after='1 s')",
         "an answer whose retry_after is a value of type str; a number of seconds is needed"),
        (f"{SEND}\n    def flush(self): return ['1']",
         "Acme.flush returned a value of type list; None or a mapping of event-ids to results"),
        (f"{SEND}\n    @classmethod\n    def open(cls, options, opening): return 7",
         "Acme.open returned a value of type int; an eventlog.publisher.sinks.Sink is needed"),
        (f"{SEND}\n    @classmethod\n    def open(cls, options): return cls()",
         "Acme.open cannot be called: Acme.open() takes 2 positional arguments but 3 were given"),
        ("def send(self, document): 1 / 0",
         "ZeroDivisionError: division by zero (acme_snk, line 15)"),
    ],
)  # fmt: skip
def test_a_wrong_answer_of_a_sink_is_named_with_its_package_and_line(
    install: Install, tmp_path: Path, run: Run, sink: str, problem: str
) -> None:
    code, err = through_sink(install, tmp_path, run, sink)
    assert code == 1
    assert "the package acme-snk (sink acme) failed: " in err
    assert problem in err


@pytest.mark.parametrize(
    ("sink", "why"),
    [
        ("pass", "it has no method send"),
        (f"needs = ['queue']\n    {SEND}", "its attribute `needs` is ['queue']; a mapping of "),
    ],
)
def test_a_sink_that_lacks_something_cannot_be_used(
    install: Install, tmp_path: Path, run: Run, sink: str, why: str
) -> None:
    code, err = through_sink(install, tmp_path, run, sink)
    assert code == 2
    assert f"sink 'acme' of the package acme-snk cannot be used: {why}" in err


@pytest.mark.parametrize(
    ("told", "problem"),
    [
        ("return 5", "Acme.contradictions returned a value of type int; an iterator of texts"),
        ("yield 5", "Acme.contradictions returned a value of type int; an iterator of texts"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_wrong_contradictions_of_a_sink_are_named(
    install: Install, tmp_path: Path, run: Run, told: str, problem: str
) -> None:
    method = f"@classmethod\n    def contradictions(cls, options, source_of): {told}"
    code, err = through_sink(install, tmp_path, run, f"{SEND}\n    {method}")
    assert code == 1
    assert "the package acme-snk (sink acme) failed: " in err
    assert problem in err


@pytest.mark.promise("option doctor--receiver")
def test_a_trial_that_returns_something_else_is_named(
    install: Install, tmp_path: Path, run: Run
) -> None:
    trial = f"{SEND}\n    @classmethod\n    def try_out(cls, options, opening): return 5"
    code, err = through_sink(install, tmp_path, run, trial, "doctor", "--receiver")
    assert code == 1
    assert "Acme.try_out returned a value of type int; a text or None is needed" in err


# --- functions and codecs -------------------------------------------------------------------------


def test_a_function_that_returns_a_wrong_verdict_is_named_with_its_line() -> None:
    def receive(_document: bytes, _events: object) -> Answer:
        return Answer({"1": "error"})  # type: ignore[dict-item]

    sink = CallableSink(receive, "receivers:receive")
    with pytest.raises(Exception, match=r"receive returned a value of type str as a result"):
        sink.send(Document(1, 1, ["1"], b"x"))


class BrokenCodec:
    name = "broken"

    def decode(self, table: TableAttrs, image: bytes) -> dict[str, object]:
        return [image]  # type: ignore[return-value]

    def encode(self, table: TableAttrs, row: object) -> bytes:
        return "row"  # type: ignore[return-value]


def test_a_codec_that_returns_no_values_is_named_with_its_line() -> None:
    codec = row_codec(BrokenCodec())
    assert codec is not None
    with pytest.raises(WrongResult, match=r"decode returned a value of type list; a dict of the "):
        values_of(codec.decode, TableAttrs(1, ()), b"")
