"""Inputs, messages and change tables as DataFrames, and their conversion."""
