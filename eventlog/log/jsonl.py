"""The change format ``jsonl``: one change a line in its JSON form (spec/change-model.md 1.1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from eventlog.changes.format import Format, Report
from eventlog.changes.json_form import CATALOG, CatalogOption, catalog_of, dumps, loads, typed_change
from eventlog.core.options import CheckedOptions, shared
from eventlog.errors import FormatError
from eventlog.files.atomic import whole_file
from eventlog.files.lines import numbered_lines, text_of
from eventlog.model import Change


@dataclass(frozen=True, slots=True)
class JsonlOptions(CheckedOptions):
    """By the catalogue the reader makes dates, decimals and so on of texts. The writer takes it, as every format does,
    and does not use it: values say their types.
    """

    catalog: CatalogOption = shared(CATALOG)


def read(source: str, options: JsonlOptions, report: Report) -> Iterator[Change]:
    """The changes of a file, one a line. A line that is none is passed over with its number."""
    catalog = catalog_of(options.catalog)
    with Path(source).open("rb") as file:
        for number, line in numbered_lines(file, source):
            try:
                change = typed_change(loads(text_of(line)), catalog)
            except FormatError as error:
                report.skip(FormatError(f"{source}, line {number}: {error}"))
                continue
            yield change


def write(changes: Iterable[Change], target: str, _options: JsonlOptions, report: Report) -> None:
    """Changes as lines of a file, whole or not at all."""
    with whole_file(target) as file:
        for change in changes:
            file.write(dumps(change).encode("utf-8", "surrogatepass") + b"\n")
            report.written += 1


FORMAT: Final = Format("jsonl", read, write, (JsonlOptions,), (JsonlOptions,))
