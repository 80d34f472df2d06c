"""GBase 8s / Informix-family change data capture streams (formats/gbase-cdc.md)."""
