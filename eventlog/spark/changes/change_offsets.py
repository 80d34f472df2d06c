"""The offsets of a stream of changes (spec/spark-changes.md 3)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from eventlog.core.ranges import RecordSet, decode
from eventlog.errors import ConfigError
from eventlog.sql.log import RecordedMasks

JsonOffset: TypeAlias = dict[str, Any]
"""An offset as Spark stores it."""


class Offset(NamedTuple):
    """The position of a stream."""

    epoch: str
    """The log's epoch."""
    done: RecordSet
    """The rows read."""
    rows: int | None
    """The number of rows in the batch that ends at this offset, None = the query begins here, so no
    batch ends here.
    """
    absent: RecordSet
    """The record_ids that were missing in the log when the query began, up to the highest removed
    record_id.
    """
    begun: str
    """The time when the consumer was registered; empty without a consumer. The consumer protects
    the unread rows from a purge.
    """
    filters: str = ""
    """The digest of the filters of the query, empty without filters."""
    masks: RecordedMasks | None = None
    """The masks of the query, None = the version that wrote the offset did not record them."""

    def as_json(self) -> JsonOffset:
        """Return the offset as Spark stores it."""
        content: JsonOffset = {
            "epoch": self.epoch,
            "line": self.begun,
            "done": self.done.encode(),
            "absent": self.absent.encode(),
            "rows": self.rows,
        }
        if self.masks is not None:
            content["masks"] = json.loads(self.masks.encode())
        return content | {"filters": self.filters} if self.filters else content


def offset_of(value: Mapping[str, Any]) -> Offset:
    """Return the offset from its JSON form. Raises ConfigError for anything else."""
    try:
        return Offset(
            str(value["epoch"]),
            decode(value["done"]),
            None if value["rows"] is None else int(value["rows"]),
            decode(value["absent"]),
            str(value["line"]),
            str(value.get("filters", "")),
            RecordedMasks.decode(json.dumps(value.get("masks"))),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"the checkpoint has no valid offset of format eventlog-changes ({error!r}). Give the "
            "query another checkpoint"
        ) from None
