"""What authors of formats and sinks test theirs with: conformance kits for pytest (extra ``testing``).

A test module imports all of a kit and has one fixture, which says what is tested::

    from eventlog.testing.format_kit import *

    @pytest.fixture
    def format_case() -> FormatCase:
        return FormatCase(MyFormat())
"""
