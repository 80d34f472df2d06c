"""Layouts of captured tables, and rows decoded by them."""

from __future__ import annotations

from collections import Counter
from typing import Any

from eventlog.gbase import records
from eventlog.gbase.layout import Layout, Layouts, parse_columns, tabschem
from eventlog.gbase.options import ReadOptions
from eventlog.model import Row


def layout_of(columns: str, counters: Counter[str] | None = None, **options: Any) -> Layout:
    read = ReadOptions(labels={1: "shop:app.item"}, **options)
    layouts = Layouts(read, Counter() if counters is None else counters)
    return layouts.define(tabschem(1, parse_columns(columns, read.decimal_no_scale)), 36)


def decoded(
    layout: Layout, payload: bytes, sizes: tuple[int, ...] = (), order: str = "little"
) -> Row:
    record = records.row(40, 5, 1, 1, sizes, payload, order)
    return dict(zip(layout.names, layout.decode(record, 36 + 4 * len(sizes)), strict=True))
