"""The change model that all formats share (spec/change-model.md)."""
