"""What stands for a connection to Oracle: it keeps statements and binds, and answers with the rows
it was given.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import oracledb


class Recorder:
    """What stands for a connection: it keeps statements and binds, and answers with the rows it was
    given.
    """

    def __init__(self, *answers: Sequence[Sequence[Any]]) -> None:
        self.run: list[tuple[str, Any]] = []
        self.answers = list(answers)
        self.connection = SimpleNamespace(
            driver_connection=SimpleNamespace(outputtypehandler=None), info={}
        )
        self.dialect = SimpleNamespace(name="oracle", arraysize=None, loaded_dbapi=oracledb)
        self.engine = SimpleNamespace(
            get_execution_options=dict, url=SimpleNamespace(query={}, username="ann")
        )

    def exec_driver_sql(
        self, statement: str, parameters: Any = None, execution_options: Any = None
    ) -> Any:
        self.run.append((statement, parameters))
        rows = self.answers.pop(0) if self.answers else []
        cursor = SimpleNamespace(
            fetchall=lambda: rows, fetchmany=lambda size: [rows.pop(0) for _ in rows[:size]]
        )
        count = len(parameters) if isinstance(parameters, list) else 0
        return SimpleNamespace(cursor=cursor, close=lambda: None, rowcount=count)


def conn(*answers: Sequence[Sequence[Any]]) -> Any:
    return Recorder(*answers)
