"""Reproduce the paper: commands for each table and figure, and our results beside the published ones."""
