"""The application's tables. The ``info`` of a table configures its capture."""

from __future__ import annotations

import sqlalchemy as sa

metadata = sa.MetaData()

usr = sa.Table(
    "usr",
    metadata,
    sa.Column("idu", sa.Integer, primary_key=True),
    sa.Column("fname", sa.Text),
    sa.Column("lname", sa.String(40)),
    sa.Column("password_hash", sa.Text),
    info={"eventlog": {"row_style": "field", "exclude": ["password_hash"]}},
)

# A child table: its one value column is the attribute usr_phone.phoneno of usr, and is watched with
# it.
usr_phone = sa.Table(
    "usr_phone",
    metadata,
    sa.Column("idu", sa.Integer, sa.ForeignKey("usr.idu", ondelete="CASCADE"), nullable=False),
    sa.Column("phoneno", sa.String(40), nullable=False),
    sa.UniqueConstraint("idu", "phoneno", name="usr_phone_once"),
)
