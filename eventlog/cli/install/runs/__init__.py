"""What the commands of ``eventlog.cli.install`` do when they run."""
