"""The change model, in which all formats meet (spec/change-model.md)."""
