"""Layouts of change tables and writers of their rows, made of single options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eventlog.qlik.columns import QlikColumn
from eventlog.qlik.tables import change_rows
from eventlog.qlik.tables.change_rows import StoredValues, TableLayout
from eventlog.qlik.tables.stored_tables import ReadOptions, WriteOptions, layout_of, layout_of_new


def read_layout(columns: Sequence[str], *, what: str, **options: Any) -> TableLayout:
    return layout_of(columns, ReadOptions(**options), what)


def new_layout(names: Sequence[str], *, what: str, **options: Any) -> TableLayout:
    columns = [QlikColumn(name, "STRING") for name in names]
    return layout_of_new(None, what, columns, WriteOptions(**options))


def row_writer(layout: TableLayout, *, mask_form: Any, what: str, **options: Any) -> StoredValues:
    return change_rows.row_writer(layout, mask_form, WriteOptions(**options), what)
