"""Reads a Qlik change table in Parquet with nothing of eventlog: PySpark's SQL alone.

    python change_table_consumer.py changes/hr.usr__ct

Prints a line for every column that a change set: its sequence, its operation, the column, the value
before and after. For a deleted row these are the key columns.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def has_bit(place: int) -> str:
    """Return SQL: whether the column at this place, from 0, is set in the mask of ``u``.

    Byte 0 has bits 0 to 7, byte 1 bits 8 to 15, and so on; bits after the last byte are 0. A mask
    of many columns does not fit into an integer, so it is read byte by byte.
    """
    byte = f"hex(substring(u.header__change_mask, {place // 8 + 1}, 1))"
    return f"coalesce(CAST(conv({byte}, 16, 10) AS int) & {1 << place % 8}, 0) <> 0"


def main(directory: str) -> None:
    spark = (
        SparkSession.builder.appName("change table")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.read.parquet(directory).createOrReplaceTempView("changes")
    columns = spark.table("changes").columns
    data = [(place, name) for place, name in enumerate(columns) if not name.startswith("header__")]
    each = ", ".join(
        (
            "named_struct('column', '{}', 'is_set', {}, 'old', CAST(b.{} AS string), 'new', "
            "CAST(u.{} AS string))"
        ).format(
            name.replace("\\", "\\\\").replace("'", "\\'"),
            has_bit(place),
            quoted(name),
            quoted(name),
        )
        for place, name in data
        if name != "partition_name"  # the folders' own
    )
    # An update follows its before image, which has the same sequence. A delete has the deleted row.
    query = f"""
        SELECT u.header__change_seq AS seq, u.header__operation AS operation, c.column,
               CASE u.header__change_oper WHEN 'D' THEN c.new ELSE c.old END AS old,
               CASE u.header__change_oper WHEN 'D' THEN NULL ELSE c.new END AS new
        FROM changes AS u
        LEFT JOIN changes AS b
            ON b.header__change_seq = u.header__change_seq
            AND b.header__change_oper = 'B' AND u.header__change_oper = 'U'
        CROSS JOIN LATERAL inline(array({each})) AS c
        WHERE u.header__change_oper <> 'B' AND c.is_set
        ORDER BY seq, c.column
    """  # noqa: S608
    spark.sql(query).show(10_000, truncate=False)


if __name__ == "__main__":
    main(sys.argv[1])
