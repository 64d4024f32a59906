"""Run Flower's servers: the SuperLink of the coordinator and the SuperNodes of the sites."""
