"""Hosts: this machine, or one that is reached over a network, and what can be done there."""
