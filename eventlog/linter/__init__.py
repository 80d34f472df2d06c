"""Linter DISPATCH_QUEUE (spec/linter-queue.md)."""
