"""What the commands of ``eventlog.cli.begin`` do when they run."""
