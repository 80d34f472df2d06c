"""Qlik change tables and Qlik Kafka messages (formats/qlik.md)."""
