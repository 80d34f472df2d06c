"""The format XDS: writer, reader, answers, schema (spec/xds.md)."""
