"""The events of a log as a DataFrame or a stream, one row per change (spec/spark-changes.md)."""
