"""The offsets of a stream of changes (spec/spark-changes.md 3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from eventlog.core.ranges import RecordSet, decode
from eventlog.errors import ConfigError


class Offset(NamedTuple):
    """The position of a stream."""

    epoch: str
    """The log's epoch."""
    done: RecordSet
    """The rows read."""
    rows: int | None
    """The number of rows in the batch that ends here, None = none ends here: the query begins."""
    absent: RecordSet
    """The record_ids below the highest removed one that the log lacked when the query began."""
    line: str
    """The time when the consumer's line was written that protects the unread rows, empty without a
    consumer.
    """

    def as_json(self) -> dict[str, Any]:
        """Return the offset as Spark keeps it."""
        return {
            "epoch": self.epoch,
            "line": self.line,
            "done": self.done.encode(),
            "absent": self.absent.encode(),
            "rows": self.rows,
        }


def offset_of(value: Mapping[str, Any]) -> Offset:
    """Return the offset of its JSON form. Raises ConfigError for a value that is not an offset."""
    try:
        return Offset(
            str(value["epoch"]),
            decode(value["done"]),
            None if value["rows"] is None else int(value["rows"]),
            decode(value["absent"]),
            str(value["line"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"the checkpoint holds no offset of format eventlog-changes ({error!r}): give the "
            "query another one"
        ) from None
