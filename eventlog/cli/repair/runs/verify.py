"""The run of ``eventlog verify``: compare a target with the source while both change
(spec/verify.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import astuple
from functools import partial
from typing import Final

from eventlog.cli.command import CommandResult
from eventlog.cli.context import Advance, CommandContext, note, progress, result, table
from eventlog.cli.repair.verify import Verify
from eventlog.cli.stopping import DONE, NOTHING, if_stopped
from eventlog.config.load import Config
from eventlog.conversion import read_map
from eventlog.errors import number_of
from eventlog.files.atomic import check_parent, remove_file, whole_file
from eventlog.sql.doctor import age
from eventlog.verify.report import Difference, Kind, Result, VerifyReport
from eventlog.verify.session import open_target, repair, run_verification
from eventlog.verify.verification import VerifyOptions

_WORDS: Final = {
    Result.EQUAL: "the target equals the source",
    Result.DIFFERENT: "the target differs from the source",
    Result.UNDECIDED: "no difference was found, but not all objects were compared in time",
}


def run_verify(context: CommandContext, request: Verify, config: Config) -> CommandResult:
    """Run ``eventlog verify``."""
    repaired = request.repaired
    if request.report is not None:
        check_parent(request.report)
        # If this verification fails, no file must have the result of an earlier one.
        remove_file(request.report)
    map = None if request.map_file is None else read_map(request.map_file)
    options = VerifyOptions(request.wait, request.size, request.max_rows_per_second)
    with (
        closing(open_target(config, request.target, map, request.format)) as opened,
        ExitStack() as shown,
    ):

        def started(total: int) -> Advance:
            bar = progress("verify", total, context.hides_progress, "objects or so")
            return shown.enter_context(bar)

        if_stopped(
            "nothing was changed, and nothing is reported; "
            + (
                "run it again to begin from the start, or with --state FILE to save the progress"
                if request.state is None
                else f"run the same command again to continue from the progress in {request.state}"
            )
        )
        found = run_verification(
            config, opened, request.classes, options, state=request.state, started=started
        )
    found.shows_values = found.shows_values or request.show_values
    if repaired is not None and found.differences:
        if_stopped("some of the differing objects may already be in the log; verify again")
        repair(config, found, surplus=repaired == "surplus")
    if_stopped(NOTHING if repaired is None else DONE)
    data = found.as_data()
    if request.report is not None:
        with whole_file(str(request.report)) as file:
            file.write(json.dumps(data, ensure_ascii=False, indent=2).encode() + b"\n")
    show = partial(_show, found, repaired, request.limit)
    return CommandResult(data, show, found.exit_code, is_confirmation=True)


run_verify_of_source = run_verify


def _show(report: VerifyReport, repaired: str | None, limit: int) -> None:
    table(
        ("class", "equal", "different", "missing", "surplus", "known different", "in motion"),
        map(astuple, report.classes.values()),
    )
    for one in report.differences[:limit]:
        for line in _lines(one, report):
            result(line)
    if (more := len(report.differences) + report.unlisted - limit) > 0:
        result(f"... and {number_of(more, 'more object')}; --limit or --report FILE lists them")
    for one in report.known[:limit]:
        result(f"known different: {one.class_name} {one.key}: {one.reason}")
    for moving in report.in_motion[:limit]:
        since = "" if moving.age is None else f" for {age(moving.age)}"
        rows = ", ".join(map(str, moving.record_ids[:3])) or "none at the last check"
        result(
            f"in motion{since}: {moving.class_name} {moving.key} has a change that is not "
            f"delivered (rows not done: {rows})"
        )
    for part in report.unproven[:limit]:
        begin = "from the first key" if part.after is None else f"after {part.after}"
        end = "to the last key" if part.through is None else f"through {part.through}"
        result(f"not compared: {part.class_name} {begin} {end}: {part.reason}")
    for table_name in report.foreign:
        note(f"cannot be proven: {table_name}")
    for column, why in report.losses.items():
        note(f"column {column} is compared in part, or not at all: {why}")
    if repaired is not None and report.differences:
        result(
            f"{number_of(report.repaired, 'row')} written to the log: verify again when they are "
            "published"
        )
        of_several = sum(one.kind is Kind.SURPLUS and bool(one.fault) for one in report.differences)
        if of_several:
            result(
                f"{number_of(of_several, 'object')} with several rows left: delete the surplus "
                "rows in the target, and give its table a unique key"
            )
        surplus = sum(one.kind is Kind.SURPLUS for one in report.differences) - of_several
        if surplus and repaired != "surplus":
            result(
                f"{number_of(surplus, 'surplus object')} left; run with --repair=surplus to delete "
                "them"
            )
    words = _WORDS[report.result]
    if report.result is Result.EQUAL and not any(one.equal for one in report.classes.values()):
        words = "no difference was found, but 0 objects are equal: check the classes and the target"
    through = report.verified_through
    until = "" if through is None else f"; verified through {through:%Y-%m-%d %H:%M:%S} UTC"
    result(f"{words}{until} ({report.seconds:.1f} s)")


def _lines(one: Difference, report: VerifyReport) -> Iterator[str]:
    rows = f" (rows {', '.join(map(str, one.record_ids))})" if one.record_ids else ""
    how = "surplus rows" if one.kind is Kind.SURPLUS and one.fault else _HOW[one.kind]
    yield f"{how}: {one.class_name} {one.key}{rows}"
    if one.fault:
        yield f"    {one.fault}"
    shown = one.as_data(shows_values=report.shows_values)["columns"]
    for column, values in zip(one.columns, shown, strict=True):
        there = "unknown" if column.is_unknown else _text(values["target"])
        yield f"    {column.column}: {_text(values['source'])} in the source, {there} in the target"


_HOW: Final = {
    Kind.VALUE: "different",
    Kind.MISSING: "missing in the target",
    Kind.SURPLUS: "only in the target",
    Kind.VERSIONS: "overlapping or missing versions",
}


def _text(value: object) -> str:
    return "NULL" if value is None else str(value)
