"""Boards: the inventory (boards.yaml), transports, leases and staging."""
