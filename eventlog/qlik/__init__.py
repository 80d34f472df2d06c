"""Qlik change tables and Qlik Kafka messages (spec/qlik.md)."""
