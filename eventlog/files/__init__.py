"""Files that appear whole, lines, rows and spools: nothing of ours is in it."""
