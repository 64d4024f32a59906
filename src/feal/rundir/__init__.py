"""Read and write run directories: every path, record and database of a run."""
