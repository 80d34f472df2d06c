"""What these commands do when they run."""
