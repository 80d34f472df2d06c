"""The report of a verification, for people and programs (spec/verify.md 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from typing import Any, Final

from eventlog.exit_codes import ExitCode
from eventlog.verify.comparison import ColumnDifference, Shown
from eventlog.verify.motion import ObjectName

MAX_LISTED: Final = 10_000
"""The maximum number of differences that a report lists; further differences are only counted."""


class Kind(StrEnum):
    """How an object differs."""

    VALUE = "value"
    """The target has other values."""
    MISSING = "missing"
    """The target does not have the object."""
    SURPLUS = "surplus"
    """Only the target has the object, or the target has several rows of the object."""
    VERSIONS = "versions"
    """The versions of the object in a history overlap, or a version is missing."""


class Result(StrEnum):
    """The overall result of a verification."""

    EQUAL = "equal"
    DIFFERENT = "different"
    UNDECIDED = "undecided"
    """No object differs, but some objects could not be compared in time, or not with certainty."""


@dataclass(slots=True)
class Difference:
    """An object that differs. ``record_ids`` are the newest rows of the log about the object."""

    class_name: str
    key: str
    kind: Kind
    columns: Sequence[ColumnDifference] = ()
    record_ids: Sequence[int] = ()
    reason: str = ""
    """Why the object is expected to differ; empty = it should be equal."""
    fault: str = ""
    """A fault of the object's rows in the target that other values would not repair: several rows
    have one key, or the versions in a history are wrong. Empty if there is no fault.
    """

    @property
    def name(self) -> ObjectName:
        """The class and the key."""
        return self.class_name, self.key

    def as_data(self, *, shows_values: bool) -> dict[str, Any]:
        """Return the difference as data for JSON; without ``shows_values`` each value is a hash."""
        shown = (lambda value: value) if shows_values else _hashed
        data: dict[str, Any] = {
            "class": self.class_name,
            "key": self.key,
            "kind": self.kind.value,
            "columns": [
                {"column": one.column, "source": shown(one.source)}
                | ({"unknown": True} if one.is_unknown else {"target": shown(one.target)})
                for one in self.columns
            ],
            "record_ids": list(self.record_ids),
        }
        details = {"reason": self.reason, "fault": self.fault}
        return data | {member: text for member, text in details.items() if text}


def _hashed(value: Shown) -> str | None:
    if value is None:
        return None
    text = value if isinstance(value, str) else "\0".join(value)
    return f"sha256:{sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


@dataclass(slots=True)
class _OfClass:
    """A part of a report, for one class."""

    class_name: str

    def as_data(self) -> dict[str, Any]:
        """Return the part as data for JSON."""
        data = asdict(self)
        return {"class": data.pop("class_name"), **data}


@dataclass(slots=True)
class InMotion(_OfClass):
    """An object that could not be compared in time, because the reader has not processed some rows
    of the log. ``record_ids`` are the first rows that the reader has not processed.
    """

    key: str
    record_ids: Sequence[int]
    age: float | None = None
    """The seconds since the event_time of the first row in ``record_ids``, None = unknown."""


@dataclass(slots=True)
class Unproven(_OfClass):
    """A range of keys that could not be compared: each database snapshot in which it was read was
    older than a table, so that the snapshot may not have shown all rows.
    """

    after: str | None
    """The key before the range; None = the range begins with the first object."""
    through: str | None
    """The last key of the range; None = the range ends with the last object."""
    reason: str
    """The tables, and what has happened to these tables."""


@dataclass(slots=True)
class ClassReport(_OfClass):
    """The numbers of objects of a class, by result."""

    equal: int = 0
    different: int = 0
    missing: int = 0
    surplus: int = 0
    known_different: int = 0
    in_motion: int = 0

    def count(self, kind: Kind) -> None:
        """Count an object that differs although it should be equal."""
        match kind:
            case Kind.VALUE | Kind.VERSIONS:
                self.different += 1
            case Kind.MISSING:
                self.missing += 1
            case Kind.SURPLUS:
                self.surplus += 1


@dataclass(slots=True)
class VerifyReport:
    """The result of a verification. Times are UTC."""

    log: str
    reader: str
    """``publisher``, or the name of a consumer."""
    target: str
    begun: datetime
    """The time of the first database snapshot by the database's clock."""
    classes: dict[str, ClassReport] = field(default_factory=dict)
    """The numbers of objects of each class: ``equal``, ``different``, ``missing``, ``surplus``,
    ``known_different``, ``in_motion``.
    """
    differences: list[Difference] = field(default_factory=list)
    """The objects that differ, 10,000 at most: class, key, kind (``value``, ``missing``,
    ``surplus``, ``versions``), columns with both values, the last five ``record_ids`` that name the
    object, and a ``fault`` of its rows in the target.
    """
    known: list[Difference] = field(default_factory=list)
    """The objects that are expected to differ, with the ``reason`` that the log shows."""
    in_motion: list[InMotion] = field(default_factory=list)
    """The objects that could not be compared in time, 10,000 at most: class, key, the first five
    rows that are not done, and ``age``, the seconds since the event_time of the first row.
    """
    unproven: list[Unproven] = field(default_factory=list)
    """The ranges of keys that could not be compared, because their table was altered each time they
    were read: class, ``after`` (the key before the range), ``through`` (the last key of the range),
    and the ``reason``. A null key is no bound.
    """
    foreign: list[str] = field(default_factory=list)
    """The foreign tables that were read. No database snapshot covers them: their objects may have
    changed since the rows of the log were read.
    """
    losses: dict[str, str] = field(default_factory=dict)
    """The columns that the target by design leaves out or stores with other values: the reason for
    each ``class.column``.
    """
    unlisted: int = 0
    """The number of differences that are counted but not listed."""
    unconfirmed: int = 0
    """The number of objects that differed at the first check, and were equal at the second."""
    repaired: int = 0
    """The number of rows that were written to the log to repair the target."""
    seconds: float = 0.0
    shows_values: bool = True
    """False if JSON has the beginning of a value's SHA-256 in place of the value."""

    def class_report(self, name: str) -> ClassReport:
        """Return the numbers of a class."""
        return self.classes.setdefault(name, ClassReport(name))

    def leave_out(self, part: Unproven) -> None:
        """Add a range of keys that could not be compared."""
        before = self.unproven[-1] if self.unproven else None
        if (
            before is not None
            and before.class_name == part.class_name
            and before.through is not None
            and before.through == part.after
        ):
            before.through = part.through
        else:
            self.unproven.append(part)

    @property
    def result(self) -> Result:
        """The result as a whole."""
        if self.differences or self.unlisted:
            return Result.DIFFERENT
        return Result.EQUAL if self._is_decided else Result.UNDECIDED

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of the command: 0 = equal, 4 = different, 5 = not decided in time."""
        return {
            Result.EQUAL: ExitCode.DONE,
            Result.DIFFERENT: ExitCode.NO,
            Result.UNDECIDED: ExitCode.UNDECIDED,
        }[self.result]

    @property
    def verified_through(self) -> datetime | None:
        """The time up to which all committed changes were compared; None if an object could not be
        compared.
        """
        return self.begun if self._is_decided else None

    @property
    def _is_decided(self) -> bool:
        return not self.in_motion and not self.unproven

    def as_data(self) -> Mapping[str, Any]:
        """Return the report as data for JSON."""
        through = self.verified_through
        return {
            "log": self.log,
            "reader": self.reader,
            "target": self.target,
            "result": self.result.value,
            "begun": self.begun.isoformat(),
            "verified_through": None if through is None else through.isoformat(),
            "seconds": round(self.seconds, 3),
            "classes": [one.as_data() for one in self.classes.values()],
            "differences": [
                one.as_data(shows_values=self.shows_values) for one in self.differences
            ],
            "unlisted": self.unlisted,
            "unconfirmed": self.unconfirmed,
            "known_different": [one.as_data(shows_values=self.shows_values) for one in self.known],
            "in_motion": [one.as_data() for one in self.in_motion],
            "unproven": [one.as_data() for one in self.unproven],
            "foreign": self.foreign,
            "losses": self.losses,
            "repaired": self.repaired,
        }
