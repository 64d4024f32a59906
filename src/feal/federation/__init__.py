"""The loop over sites: coordinator, messages, transports, and what one site does."""
