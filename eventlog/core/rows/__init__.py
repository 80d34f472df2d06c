"""A row of the log until it is an event: it is checked, folded into a group, and built."""
