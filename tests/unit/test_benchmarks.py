"""What benchmarks say of the interpreter that they ran on."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

COMMON = runpy.run_path(str(Path(__file__).parents[2] / "bench" / "common.py"))


@pytest.mark.parametrize(
    ("options", "built"),
    [
        ("", "without --enable-optimizations and without LTO"),
        ("'--prefix=/opt/python'", "without --enable-optimizations and without LTO"),
        ("'--enable-optimizations' '--with-lto'", "with --enable-optimizations and with LTO"),
        ("'--enable-optimizations' '--with-lto=thin'", "with --enable-optimizations and with LTO"),
    ],
)
def test_a_benchmark_reports_how_python_was_built(options: str, built: str) -> None:
    assert COMMON["python"](options).endswith(f", built {built}")


def test_a_distribution_does_not_say_how_it_has_built_python() -> None:
    options = "'--prefix=/usr' '--enable-shared'"
    assert COMMON["python"](options).endswith("whose configure does not say how it is built")
