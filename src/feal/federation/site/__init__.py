"""Answer the coordinator's messages at one site."""
