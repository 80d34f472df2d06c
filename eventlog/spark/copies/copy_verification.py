"""Compare a live copy with its class while the query writes (spec/verify.md 4.3)."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

from pyspark.sql import types as t

from eventlog.changes.publishing import row_attributes
from eventlog.config.load import Config, load
from eventlog.config.publishing import value_options
from eventlog.core import table_key
from eventlog.core.arguments import NAME, PATH, Kind, check_arguments
from eventlog.core.catalog import Attribute, ObjectClass
from eventlog.core.ranges import RecordSet
from eventlog.core.values import TEMPORAL, key_normalizer
from eventlog.core.values.typed_values import to_text
from eventlog.errors import ConfigError
from eventlog.spark.copies.copy_history import (
    BATCH,
    COMMIT_TIME,
    LOAD,
    OPERATION,
    POSITION,
    SUFFIX,
    TRUNCATE,
)
from eventlog.spark.copies.copy_target import Values
from eventlog.spark.copies.copy_types import Columns, columns_of_class
from eventlog.spark.copies.delta_copy import DeltaCopy
from eventlog.spark.copies.history_rows import HistoryRow, HistoryRows
from eventlog.spark.copies.iceberg_copy import IcebergCopy
from eventlog.spark.session.arguments import COPY
from eventlog.spark.session.arrow_rows import structs_of
from eventlog.spark.session.in_tasks import Batches
from eventlog.verify.comparison import UNKNOWN, StoredAs
from eventlog.verify.report import VerifyReport
from eventlog.verify.session import repair, run_verification
from eventlog.verify.targets.states import State, States, StatesTarget
from eventlog.verify.verification import VerifyOptions


class CopyTarget(StatesTarget):
    """A live copy as a target of verify; each read sees one version of the table."""

    names_done = True

    def __init__(self, copy: DeltaCopy | IcebergCopy, config: Config) -> None:
        self._copy, self._config = copy, config
        self._version: Any = None
        self._pinned: Any = None

    def __str__(self) -> str:
        return f"the copy {getattr(self._copy, 'uri', None) or getattr(self._copy, 'name', '')}"

    attributes = staticmethod(row_attributes)

    def stored_as(self, cls: ObjectClass) -> Mapping[str, StoredAs]:
        columns = columns_of_class(cls, value_options(self._config))
        return {one.name: partial(_storable_text, columns, one) for one in self.attributes(cls)}

    def done(self) -> RecordSet | None:
        done, self._version = self._copy.done()
        if done is None:
            raise ConfigError(
                f"{self} does not record which rows of the log it contains. Let the query write "
                "one more batch, then verify again"
            )
        return done

    def pin(self, classes: Collection[ObjectClass]) -> None:
        if self._pinned is not None and self._pinned == self._version:
            return
        self.close()
        self._pinned = self._version
        (cls,) = classes
        states = self.states = States({cls: [one.name for one in self.attributes(cls)]})
        states.add_all(cls.name, self._states_of(cls, self._copy.rows_of(self._version)))

    def _states_of(self, cls: ObjectClass, parts: Batches) -> Iterator[tuple[str, State]]:
        """Yield the keys of objects and their states, from the rows of the table."""
        names = [one.name for one in self.attributes(cls)]
        for part in parts:
            for row in part.to_pylist():
                yield _key(cls, row), _state(names, row)


def _state(names: Iterable[str], row: Values) -> State:
    return [_text(row[name]) if name in row else UNKNOWN for name in names]


def _text(value: Any) -> str | None:
    return None if value is None else to_text(value)


def _key(cls: ObjectClass, row: Values) -> str:
    """Return the canonical key of a row. A row of a copy has no NULL in its key."""
    return table_key.key_text(
        (column.name, key_normalizer(column.type)(_text(row[column.name]) or ""))
        for column in cls.key
    )


class HistoryTarget(CopyTarget):
    """The history of a live copy as a target of verify; each read sees one version of the table.
    The newest version of each object is compared like a row of a copy, and all versions of an
    object are compared with each other.
    """

    def __init__(self, copy: DeltaCopy | IcebergCopy, config: Config) -> None:
        super().__init__(copy.sibling(SUFFIX), config)
        self._faults: Mapping[str, str] = {}

    def __str__(self) -> str:
        return super().__str__().replace("the copy", "the history", 1)

    def faults(self, cls: ObjectClass) -> Mapping[str, str]:
        return self._faults

    def _states_of(self, cls: ObjectClass, parts: Batches) -> Iterator[tuple[str, State]]:
        names = [one.name for one in self.attributes(cls)]
        with closing(HistoryRows()) as rows:
            for part in parts:
                rows.add(
                    HistoryRow(
                        None if row[OPERATION] == TRUNCATE else _key(cls, row),
                        row[LOAD],
                        row[BATCH],
                        row[POSITION],
                        row[OPERATION],
                        row[COMMIT_TIME],
                        _state(names, row),
                    )
                    for row in part.to_pylist()
                )
            faults = self._faults = {}
            for key, state, fault in rows.objects():
                if fault:
                    faults[key] = fault
                if state is not None:
                    yield key, state


def _storable_text(columns: Columns, attribute: Attribute, text: str) -> str | None:
    """Return the text that a copy has for a value; None = the copy has NULL (spec/spark-changes.md
    6).
    """
    value = columns.readers[attribute.name](text)
    kind = columns.types[attribute.name].dataType
    if isinstance(value, str) and attribute.column.type.kind in TEMPORAL:
        return None  # such as infinity
    array = structs_of(
        [{attribute.name: value}], t.StructType([t.StructField(attribute.name, kind)]), ""
    )
    return _text(array.field(0)[0].as_py())


def _check_arguments(
    function: str, config: object, class_name: object, copy: object, options: object
) -> None:
    check_arguments(
        function,
        config=(config, PATH),
        class_name=(class_name, NAME),
        copy=(copy, COPY),
        options=(options, _VERIFY_OPTIONS),
    )


_VERIFY_OPTIONS: Final = Kind(
    lambda value: isinstance(value, VerifyOptions),
    "eventlog.verify.verification.VerifyOptions",
)


def verify(
    config: str | Path,
    class_name: str,
    copy: DeltaCopy | IcebergCopy,
    *,
    options: VerifyOptions = VerifyOptions(),  # noqa: B008 - frozen
    repairs: bool = False,
) -> VerifyReport:
    """Compare a live copy with its class while the query and the application write, and return the
    report (spec/verify.md).

    ``config`` is the file, as for ``live_copy``. With ``repairs``, different and missing objects
    are written to the log again. No Spark is needed. Raises ConfigError and DatabaseError.
    """
    _check_arguments("verify", config, class_name, copy, options)
    loaded = load(Path(config), os.environ)
    with closing(CopyTarget(copy, loaded)) as target:
        report = run_verification(loaded, target, [class_name], options)
    if repairs and report.differences:
        repair(loaded, report)
    return report


def verify_history(
    config: str | Path,
    class_name: str,
    copy: DeltaCopy | IcebergCopy,
    *,
    options: VerifyOptions = VerifyOptions(),  # noqa: B008 - frozen
) -> VerifyReport:
    """Compare the history of a live copy with the class while the query and the application write,
    and return the report (spec/verify.md 4.4).

    ``copy`` is the copy, not the table of its history. The other arguments are the arguments of
    ``verify``. Raises ConfigError and DatabaseError.
    """
    _check_arguments("verify_history", config, class_name, copy, options)
    loaded = load(Path(config), os.environ)
    with closing(HistoryTarget(copy, loaded)) as target:
        return run_verification(loaded, target, [class_name], options)
