"""eventlog: a database-trigger publisher emulator and event-log processor."""

__version__ = "0.1.0"
