"""The change format ``eventlog``: rows of an event log in files or in a live table
(spec/event-log.md).
"""
