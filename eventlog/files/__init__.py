"""Files that appear complete, lines, rows and spools, independent of event logs."""
