"""Bulk conversion on Spark."""
