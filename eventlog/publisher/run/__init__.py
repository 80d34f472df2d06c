"""A publisher as a process: it works, rests, waits, and shows that it is alive."""
