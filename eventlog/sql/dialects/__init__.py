"""The supported databases, one package each, found by name. Each has the same modules:

============  ============================================================  =================
``__init__``  the dialect: the capabilities of the database, the text of    ``log.sql``
              its log's statements, the tables of a log
``database``  a session: how it begins, the catalogue, the rows of objects
              by their keys, database snapshots
``log``       a log in a session: its lock, rights, rows, and the keys
              after a position
``session``   how a session is connected, what its errors mean, the         ``doctor.sql``
              answers for ``doctor``
``text``      SQL text: names, values as log text, keys, and the condition
              that a value has changed
``objects``   the application's tables as text and types: what the          ``reflect.sql``
              catalogue has, the statements that read objects
``triggers``  the changes that triggers log, as SQL (``*.sql.j2``), and     ``installed.sql``
              how triggers are compared and applied
============  ============================================================  =================

PostgreSQL, whose triggers call functions, has further modules: among them, ``compile`` makes the
SQL of triggers and functions, and ``installed`` reads the installed triggers and functions. Oracle
has ``script``, which writes scripts for SQL*Plus, and ``address``, which turns a URL into the
driver's arguments. ``mysql_family`` is not a database, but the common part of MariaDB and MySQL. It
has the modules of a database and two more: ``cascades`` finds the rows that foreign keys change
without firing a trigger, ``writers`` finds the open writers of a log. ``mariadb`` and ``mysql``
have the differences; their ``log`` also contains the session. ``stepwise`` is the common part of
all databases but PostgreSQL.
"""
