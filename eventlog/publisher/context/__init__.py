"""What the functions of a publisher work with: options, counters, and the observer of its work."""
