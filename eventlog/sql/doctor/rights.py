"""The finding of ``doctor`` about roles with rights on the log that no purpose explains
(spec/event-log.md 11.1).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple

from eventlog.errors import first_of
from eventlog.sql.doctor import Findings, info, warning
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.dialect import Dialect
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.port.questions import ask
from eventlog.sql.port.rights import Addition, Part, Purpose, Right, demanded, rights_for
from eventlog.sql.port.sql_files import grouped


class RightOfOther(NamedTuple):
    """A right that a role other than the owner has on an object of the log."""

    part: str
    """A ``Part``, or ``leaf``, ``database``, or ``wake`` or ``trigger`` for a function."""
    kind: str
    """The kind of the object as a GRANT names it."""
    name: str
    """The name of the object as SQL."""
    grantee: str | None
    """The role, None = PUBLIC."""
    right: str
    column: str | None
    """The column that the right is limited to."""

    @property
    def held(self) -> _Held:
        """The right without its holder."""
        return self.part, self.right, self.column


_Held = tuple[str, str, str | None]
"""A part of a log, a right, and a column or None."""

_ROWS: Final = (Part.LOG.value, Part.DEFERRED.value, "leaf", "database")
"""The parts whose rights are rights on the rows of the log."""
_DEEDS: Final[Sequence[tuple[Collection[str], Collection[str], str]]] = (
    (_ROWS, ("SELECT",), "reads all values"),
    (_ROWS, ("INSERT",), "forges events"),
    (_ROWS, ("UPDATE", "DELETE", "TRUNCATE", "DROP"), "hides changes"),
    (_ROWS, ("TRIGGER", "ALTER"), "lets its own code run with the rights of the triggers' owner"),
    (("trigger",), ("EXECUTE",), "uses the functions of the triggers in its own triggers"),
    (("wake",), ("EXECUTE",), "keeps the publisher asleep"),
)
"""What a role can do with rights on parts of a log, the worst first."""


class RightsOfOthers(NamedTuple):
    """The rights of roles other than the owner on the log and its internal tables."""

    rights: Sequence[RightOfOther]
    has_sequence: bool
    """True if the rows are numbered by a sequence on which a role can have rights."""

    @classmethod
    def read(cls, log: OpenLog) -> RightsOfOthers:
        """Read the rights that the session sees."""
        trigger = log.table.own_name("_tgr_{}_i_1")
        numbering = log.grants({Part.RECORD_IDS: frozenset({Right.SELECT})}, "")
        return cls(
            ask(log, "rights_of_others", RightOfOther, wake_trigger=trigger),
            has_sequence=len(numbering) > len(log.grants({}, "")),
        )

    def publishers(self, log: LogTable, dialect: Dialect) -> list[str]:
        """Return the roles that have all rights of a publisher on the log."""
        return [
            role
            for role, held in grouped((one.grantee, one.held) for one in self.rights).items()
            if role is not None
            and Purpose.PUBLISHER in _purposes(held, log, dialect, self.has_sequence)[0]
        ]


def judge_rights_of_others(of_others: RightsOfOthers, log: LogTable, dialect: Dialect) -> Findings:
    """Judge the roles with rights on the log. A role is expected if it has all rights of one or
    more purposes, and no further right.
    """
    rights, has_sequence = of_others
    for role, all_held in grouped((one.grantee, one) for one in rights).items():
        purposes, expected = _purposes({one.held for one in all_held}, log, dialect, has_sequence)
        may_read = _is_reader(role, log, dialect)
        held = [one for one in all_held if not (may_read and one.right == "SELECT")]
        if not all(one.held in expected for one in held):
            deeds = first_of(list(_deeds(held)), 6)
            who = "every role (PUBLIC)" if role is None else f"the role {role}"
            text = f"{who} has rights on the log that its work with eventlog does not need: {deeds}"
            fix = _fix(role, held, purposes, dialect, may_read=may_read)
            yield warning("unexpected_rights", text, *fix)


def judge_hidden_rights(*, visible: bool, user: str) -> Findings:
    """Report that the rights of others are not visible to this user."""
    if not visible:
        yield info(
            "unexpected_rights",
            f"the rights of other users on the log are not visible to {user}, so nothing is known "
            "about them",
            "run `eventlog doctor` as a user that sees them: the owner on Oracle, a user with "
            "SELECT on mysql.* on MariaDB and MySQL",
        )


def _is_reader(role: str | None, log: LogTable, dialect: Dialect) -> bool:
    return role is not None and (role in log.readers or _parts(role, dialect)[0] in log.readers)


def _parts(role: str, dialect: Dialect) -> list[str]:
    """Return the name of a role and, for a user of MariaDB or MySQL, the host."""
    return [role] if "schemas" in dialect.capabilities else role.rsplit("@", 1)


def _deeds(held: Iterable[RightOfOther]) -> Iterable[str]:
    rest = set(held)
    for parts, rights, deed in _DEEDS:
        if found := {one for one in rest if one.part in parts and one.right in rights}:
            yield deed
            rest -= found
    names = {part.value for part in Part} - {Part.LOG}
    if any(one.part in names and one.right != "SELECT" for one in rest):
        yield "changes the state of the publisher and the consumers"
    elif any(one.part in names for one in rest):
        yield "reads error messages and the state of the publisher"
    if others := sorted({one.right for one in rest if one.part not in names}):
        yield f"has {', '.join(others)}"


def _purposes(
    held: Collection[_Held], log: LogTable, dialect: Dialect, has_sequence: bool
) -> tuple[list[Purpose], set[_Held]]:
    """Return the purposes of which a role has all demanded rights, and all rights of these
    purposes.
    """
    found, expected = [], set[_Held]()
    # A right on a whole table includes its columns.
    satisfied = {(part, right) for part, right, column in held if column is None}
    for purpose in Purpose:
        needed = demanded(purpose)
        if purpose is Purpose.MONITOR and has_sequence:
            # Otherwise every role that may read all tables of the schema would be a monitor.
            needed.append((Part.RECORD_IDS, Right.SELECT))
        single = [one for part, right in needed for one in _granted(part, right, log, dialect)]
        if all(one in held or one[:2] in satisfied for one in single):
            found.append(purpose)
            for part, rights in rights_for(purpose, *Addition).items():
                for right in rights:
                    expected.update(_granted(part, right, log, dialect))
    return found, expected


def _granted(part: Part, right: Right, log: LogTable, dialect: Dialect) -> Iterable[_Held]:
    """Return a right on a part of a log as single rights that the database grants."""
    if part in (Part.CLASSES, Part.TABLES, Part.WRITERS):
        return []
    if right is Right.LOCK:  # by a row of the version table, on Oracle
        return [(Part.VERSION.value, Right.SELECT.value, None)]
    if right is Right.DRAW:
        return [(part.value, one, None) for one in dialect.drawing.split(", ")]
    columns = tuple(map(log.column, right.columns)) or (None,)
    return [(part.value, right.statement, column) for column in columns]


def _fix(
    role: str | None,
    held: Sequence[RightOfOther],
    purposes: Sequence[Purpose],
    dialect: Dialect,
    *,
    may_read: bool,
) -> Iterable[str]:
    grantee = "PUBLIC" if role is None else "@".join(map(dialect.quote, _parts(role, dialect)))
    together = "grants_together" in dialect.capabilities
    for kind, names in grouped((one.kind, one.name) for one in held).items():
        each = [*dict.fromkeys(names)]
        if kind == "DATABASE":
            yield (
                f"grant {grantee} its rights on each table of the application, then "
                f"REVOKE ALL PRIVILEGES ON {dialect.quote(each[0])}.* FROM {grantee}: a right on a "
                "database cannot be revoked for one table"
            )
            continue
        for name in [", ".join(each)] if together else each:
            objects = " ".join(filter(None, (kind, name)))
            yield f"REVOKE ALL ON {objects} FROM {grantee}"
            if may_read and kind != "FUNCTION":
                yield f"GRANT SELECT ON {objects} TO {grantee}"
    if role is None:
        return
    if any(one.right == "SELECT" for one in held):
        yield f"if {role} only reads, as for a backup, name it in `readers` of [database]"
    if purposes:
        yield (
            f"if {role} works with the log, run what `eventlog grants` prints for its purposes "
            f"afterwards; it has the rights of {', '.join(purposes)}"
        )
