"""Files that appear complete or not at all, numbered lines, rows of tables, and spools. Nothing
here depends on event logs.
"""
