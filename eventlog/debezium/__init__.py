"""Debezium change events: envelopes as JSON, with and without schema (spec/debezium.md)."""
