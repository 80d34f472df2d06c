# ruff: noqa: B027 - what most targets leave empty
"""The targets that the source is compared with: a port, and a module for each kind of target
(spec/verify.md 4).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Generator, Mapping, Sequence
from typing import ClassVar, TypeAlias

from eventlog.core.catalog import Attribute, ObjectClass
from eventlog.core.ranges import RecordSet
from eventlog.sql.port.log_operations import RangeReader
from eventlog.verify.comparison import StoredAs, TargetRow

KeyLists: TypeAlias = Generator[list[str], None, None]
"""Keys of a target, in lists."""


class Target(ABC):
    """A target, as a verification reads it."""

    is_pinned: ClassVar[bool]
    """True if the target is read as a whole, as it was when ``pin`` was called; False if each row
    is read when it is requested.
    """

    names_done: ClassVar[bool] = False
    """True if the target itself records the rows of the log that it contains (``done``). Then the
    statuses in the log and its records of refused rows do not show what was applied.
    """

    @abstractmethod
    def __str__(self) -> str:
        """Return the name of the target in reports, without secrets."""

    @abstractmethod
    def attributes(self, cls: ObjectClass) -> Sequence[Attribute]:
        """Return the attributes that the target stores of a class, without the key.

        Raises ConfigError if the target does not have the class.
        """

    def stored_as(self, cls: ObjectClass) -> Mapping[str, StoredAs]:
        """Return the functions by which the target changes values by design, by attribute."""
        return {}

    def not_stored(self, cls: ObjectClass) -> Sequence[str]:
        """Return the attributes of a class for which the target by design has no place."""
        known = {attribute.name for attribute in self.attributes(cls)}
        return [one.name for one in cls.attributes if not one.is_key and one.name not in known]

    def done(self) -> RecordSet | None:
        """Choose the state of the target that ``pin`` reads next. Return the rows of the log that
        this state contains; None if the target does not record them, so that the reader's done rows
        count.
        """
        return None

    def pin(self, classes: Collection[ObjectClass]) -> None:
        """Read the target as it is now, if it is read as a whole."""

    @abstractmethod
    def rows(self, cls: ObjectClass, keys: Sequence[str]) -> Mapping[str, TargetRow]:
        """Return the rows of these objects by canonical key of the class; objects that the target
        does not have are left out.
        """

    @abstractmethod
    def other_keys(self, cls: ObjectClass, size: int) -> KeyLists:
        """Yield keys of the class's objects in the target, in lists of at most ``size``. The lists
        include all keys for which ``rows`` was never called. A key that is not a valid key of the
        class is returned as its text.
        """

    def faults(self, cls: ObjectClass) -> Mapping[str, str]:
        """Return the faults that objects have in the pinned state of the target, whatever the
        source has: a sentence for each key with a fault.
        """
        return {}

    def range_reader(self, cls: ObjectClass) -> RangeReader | None:
        """Return the reader of the objects of a class by ranges of keys. The reader reads each
        object with the key of the source and the texts of ``attributes``. None if the target cannot
        be read by ranges of keys.
        """
        return None

    def close(self) -> None:
        """Release the target's resources."""
