"""Tools for tests: kits for authors of formats, sinks and sources, and emulated sources.

The kits are for pytest and need the extra ``testing``. A test module imports everything from a kit
and has one fixture, which returns the case to test::

    from eventlog.testing.format_kit import *

    @pytest.fixture
    def format_case() -> FormatCase:
        return FormatCase(MyFormat())

The emulators need no extra. They stand in for servers that a user does not have:
``gbase_emulator`` and ``gbase_workload`` for a GBase CDC server, ``linter_emulator`` and
``linter_codec`` for a Linter queue. No other package imports them, except for the row codec
``eventlog-emulator-1``, which ``eventlog.linter.codec`` loads by name.
"""
