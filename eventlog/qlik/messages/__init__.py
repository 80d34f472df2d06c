"""Qlik messages for Kafka, in files and topics (formats/qlik.md 5)."""
