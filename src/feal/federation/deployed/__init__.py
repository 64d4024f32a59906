"""A site on a machine of its own: it takes messages from Flower's SuperNode and answers them."""
