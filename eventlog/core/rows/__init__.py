"""The way from rows of the log to events: rows are checked and folded into groups, and each group
is built into an event.
"""
