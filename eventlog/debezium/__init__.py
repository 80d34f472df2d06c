"""Debezium change events: envelopes as JSON, with and without schema (formats/debezium.md)."""
