"""Tables, plots and reports; reads run directories only."""
