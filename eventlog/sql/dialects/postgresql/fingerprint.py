"""Whether tables are still those of a catalogue, by one cheap statement."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, text

from eventlog.core.catalog import Catalog

_STATEMENT: Final = text("""
SELECT md5(coalesce(string_agg(
    concat_ws(' ', c.oid, i.indkey, a.attnum, a.attname, a.atttypid, a.atttypmod), ',' ORDER BY c.oid, a.attnum), ''))
    || (SELECT concat(count(*), ' ', max(t.oid))
        FROM pg_catalog.pg_class t JOIN pg_catalog.pg_namespace s ON s.oid = t.relnamespace
        WHERE s.nspname = :schema AND t.relkind IN ('r', 'p', 'v', 'm') AND NOT t.relispartition)
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_catalog.pg_index i ON i.indrelid = c.oid AND i.indisprimary
WHERE n.nspname = :schema AND c.relname = ANY(CAST(:tables AS text[])) AND c.relkind IN ('r', 'p', 'v', 'm')
""")


def fingerprint(conn: Connection, catalog: Catalog) -> str:
    """A text that is another one once a column or the key of a class's tables is, or the schema has another table.

    A hash of the system catalogue. What is watched may be a pattern, so a new table may be a class.
    """
    parameters = {"schema": catalog.schema, "tables": list(catalog.log_names)}
    return str(conn.execute(_STATEMENT, parameters).scalar_one())
