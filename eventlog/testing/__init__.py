"""Conformance kits for pytest, by which authors test their formats and sinks (extra ``testing``).

A test module imports all of a kit and has one fixture, which returns the case to test::

    from eventlog.testing.format_kit import *

    @pytest.fixture
    def format_case() -> FormatCase:
        return FormatCase(MyFormat())
"""
