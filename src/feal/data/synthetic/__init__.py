"""Synthetic data sets: sites with different cameras, and samples whose labels differ in value."""
