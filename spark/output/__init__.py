"""What a job writes: the output directory, the files of a part, and a module a format."""
