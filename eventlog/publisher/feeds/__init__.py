"""What a publisher sends next: rows of the queue, due rows, objects of a snapshot, their values."""
