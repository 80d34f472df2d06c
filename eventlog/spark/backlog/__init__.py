"""A whole backlog as files of documents: rows are claimed, folded in parts, written and marked
(spec/event-log.md 8.6).
"""
