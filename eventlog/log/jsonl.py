"""The change format ``jsonl``: one change a line in its JSON form (spec/change-model.md 1.1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from eventlog.changes import json_form as change_json
from eventlog.changes.catalog_file import CATALOG, CatalogOption, database_of
from eventlog.changes.format import Format, Report
from eventlog.changes.keys import class_of_change
from eventlog.core.catalog import Catalog, ObjectClass, build_catalog
from eventlog.core.options import check, parse_options, shared
from eventlog.core.typed import typed_by
from eventlog.core.values import ColumnType
from eventlog.errors import FormatError, RowError
from eventlog.files.atomic import whole_file
from eventlog.files.lines import numbered_lines, text_of
from eventlog.model import Change, Value


@dataclass(frozen=True, slots=True)
class JsonlOptions:
    """By the catalogue the reader makes dates, decimals and so on of texts. The writer takes it, as every format does,
    and does not use it: values say their types.
    """

    catalog: CatalogOption = shared(CATALOG)

    def __post_init__(self) -> None:
        check(self)


def read(source: str, options: Mapping[str, Any], report: Report) -> Iterator[Change]:
    """The changes of a file, one a line. A line that is none is passed over with its number."""
    chosen = parse_options(JsonlOptions, options, "the jsonl reader")
    database = database_of(chosen.catalog)
    catalog = None if database is None else build_catalog(database)
    with Path(source).open("rb") as file:
        for number, line in numbered_lines(file, source):
            try:
                change = typed_change(change_json.loads(text_of(line)), catalog)
            except FormatError as error:
                report.skip(FormatError(f"{source}, line {number}: {error}"))
                continue
            report.read += 1
            yield change


def write(changes: Iterable[Change], target: str, options: Mapping[str, Any], report: Report) -> None:
    """Changes as lines of a file, whole or not at all."""
    parse_options(JsonlOptions, options, "the jsonl writer")
    with whole_file(target) as file:
        for change in changes:
            file.write(change_json.dumps(change).encode("utf-8", "surrogatepass") + b"\n")
            report.written += 1


def typed_change(change: Change, catalog: Catalog | None) -> Change:
    """A change out of JSON, its values typed by the columns of the catalogue. Raises FormatError."""
    object_class = class_of_change(catalog, change)
    if object_class is None:
        return change
    types = _types(object_class)
    try:
        return change._replace(
            key=None if change.key is None else tuple((name, _typed(types, name, value)) for name, value in change.key),
            before=None if change.before is None else _image(types, change.before),
            after=None if change.after is None else _image(types, change.after),
        )
    except RowError as error:
        raise FormatError(f"{change.op} of {change.table!r} at {change.position}: {error}") from error


def _types(object_class: ObjectClass) -> dict[str, ColumnType]:
    types = {column.name: column.type for column in object_class.table.columns}
    types.update((attribute.name, attribute.column.type) for attribute in object_class.attributes)
    return types


def _image(types: Mapping[str, ColumnType], row: Mapping[str, Value]) -> dict[str, Value]:
    return {name: _typed(types, name, value) for name, value in row.items()}


def _typed(types: Mapping[str, ColumnType], name: str, value: Value) -> Value:
    type = types.get(name)
    return value if type is None else typed_by(type, value)


FORMAT: Final = Format("jsonl", read, write)
