"""Files that appear whole, lines, rows and spools. Nothing here knows of event logs."""
