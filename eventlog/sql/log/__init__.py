"""The rows of a log and of its internal tables, by statements that every database understands."""
