"""Operations, rendering and autogenerate for users' own Alembic trees; ``eventlog.alembic`` is what they import."""
