"""The databases, a package each, found by ``eventlog.sql.connection``."""
