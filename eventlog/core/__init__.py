"""The rules, without input or output: from the rows of a log to events."""
