"""The format ``eventlog``: rows of a log in files or in a live table (spec/event-log.md)."""
