"""The run of ``eventlog grants``: the rights that a role needs, as SQL."""

from __future__ import annotations

from eventlog.cli.context import CommandContext, note, print_json, reading, result
from eventlog.publisher.inspect import grants_for
from eventlog.sql.port import Purpose


def run_grants(context: CommandContext, role: str, purpose: str, *, as_json: bool) -> None:
    """Run ``eventlog grants``: the parameters are its argument and options."""
    config = context.config()
    with reading(config) as db:
        statements = grants_for(db, config, role, Purpose(purpose))
        is_missing = db.has_user(db.dialect.spelled(role)) is False
    if is_missing:
        note(f"the database has no role {role!r}: create it before you run these statements")
    if as_json:
        print_json({"role": role, "purpose": purpose, "grants": statements})
        return
    end = ";" if "roles" in db.dialect.capabilities else ""
    for statement in statements:
        result(f"{statement}{end}")
