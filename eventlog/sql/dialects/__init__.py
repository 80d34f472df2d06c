"""The databases, a package each, found by ``eventlog.sql.connection``. Each has the same rooms:

============  =============================================================================  =================
``__init__``  the dialect: what the database can do; its log: made, read, marked, cut into   ``log.sql``
              parts
``session``   how a session begins, its lock on a log, its rights, what ``doctor`` asks      ``doctor.sql``
``text``      SQL text: names, values as log text, keys, the change test
``objects``   the application's tables: the catalogue, the rows of objects by their keys,    ``reflect.sql``
              the keys behind a position
``triggers``  what triggers log, as SQL (``*.sql.j2``), how they are compared and applied    ``installed.sql``
============  =============================================================================  =================

PostgreSQL, whose triggers call functions, has two more: ``compile``, the SQL of triggers and functions, and
``installed``, what is there. Oracle has ``script``, what SQL*Plus needs, and ``address``, from a URL to the driver's
arguments. MariaDB has ``cascades``, what foreign keys take along without a trigger. ``stepwise`` is what all but
PostgreSQL have in common.
"""
