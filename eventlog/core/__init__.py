"""The rules that turn rows of a log into events, without input or output."""
