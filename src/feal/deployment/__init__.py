"""Hospitals on their own machines: Flower's servers as the coordinator and the sites run them."""
