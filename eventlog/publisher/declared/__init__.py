"""What the configuration declares, opened: classes, triggers, log, sink, format; and the watchers
that see whether it still holds.
"""
