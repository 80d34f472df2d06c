"""Rights of the user that connects: to publish, to read back, to apply triggers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from eventlog.publisher.doctor import Finding
from eventlog.sql.health import Unreadable


def judge_rights(missing: Sequence[str], user: str, grants: Sequence[str]) -> Iterator[Finding]:
    """What the user lacks to publish."""
    if missing:
        text = f"user {user} lacks rights to publish the log: {'; '.join(missing)}"
        yield Finding("rights_publish", "error", text, tuple(grants))


def judge_unreadable(
    found: Iterable[Unreadable], user: str, schema: str, quote: Callable[[str], str]
) -> Iterator[Finding]:
    """Tables that cannot be read back."""
    for one in found:
        yield Finding(
            "rights_read",
            "error",
            f"user {user} may not read {one.table} ({', '.join(one.columns)}): its query-back events cannot be built",
            (f"GRANT SELECT ON {quote(schema)}.{quote(one.table)} TO {quote(user)}",),
        )


def judge_rights_to_apply(missing: Sequence[str], user: str) -> Iterator[Finding]:
    """What the user lacks to apply triggers, which a publisher's user need not be able to."""
    if missing:
        yield Finding(
            "rights_triggers",
            "info",
            f"user {user} cannot apply triggers: it lacks {'; '.join(missing)}. The publisher does not need that",
            ("eventlog triggers apply --sql, to be run by the owner of the tables",),
        )
