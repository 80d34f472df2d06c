"""The run of ``eventlog grants``: the rights that a role needs, as SQL."""

from __future__ import annotations

from eventlog.cli.command import CommandResult
from eventlog.cli.context import CommandContext, note, reading
from eventlog.cli.install.grants import Grants
from eventlog.config.load import Config
from eventlog.publisher.inspect import grants_for
from eventlog.sql.port import Purpose


def run_grants(context: CommandContext, request: Grants, config: Config) -> CommandResult:
    """Run ``eventlog grants``."""
    role = request.role
    with reading(config) as db:
        statements = grants_for(db, config, role, Purpose(request.purpose))
        is_missing = db.has_user(db.dialect.spelled(role)) is False
    if is_missing:
        note(f"the database has no role {role!r}: create it before you run these statements")
    end = ";" if "roles" in db.dialect.capabilities else ""
    return CommandResult(
        {"role": role, "purpose": request.purpose, "grants": statements},
        "\n".join(f"{statement}{end}" for statement in statements),
    )
