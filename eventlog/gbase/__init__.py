"""GBase 8s / Informix-family change data capture streams (spec/gbase-cdc.md)."""
