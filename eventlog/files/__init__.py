"""Files that appear whole, lines and spools: nothing of ours is in it."""
