"""The loop over sites: coordinator, messages, engines, and what one site does."""
