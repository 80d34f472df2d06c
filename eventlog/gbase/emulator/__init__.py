"""A server without a server: its tables, transactions, sessions and streams, and work for it (spec/gbase-cdc.md 6)."""
