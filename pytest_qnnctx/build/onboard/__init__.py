"""The classic route: a model library compiled on the board."""
