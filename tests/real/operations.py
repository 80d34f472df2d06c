"""The operations of a workload, counted. It runs in the environment of each application."""

from __future__ import annotations

import json
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


class Operations:
    """What was done, and what failed. A failure ends neither the workload nor the process."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()

    def run(self, operation: Callable[..., T], *arguments: Any) -> T | None:
        try:
            result = operation(*arguments)
        except Exception as error:
            traceback.print_exc()
            self.failed[f"{operation.__name__}: {type(error).__name__}: {error}"[:300]] += 1
            return None
        self.done[operation.__name__] += 1
        return result


def run_stage(stages: Mapping[str, Callable[[Operations], object]]) -> None:
    """Run the stage that the command line names, and print its counts as the last line."""
    operations = Operations()
    stages[sys.argv[1]](operations)
    print(json.dumps({"done": operations.done, "failed": operations.failed}))
