"""The log as a table that is partitioned by record_id (spec/event-log.md 14)."""
