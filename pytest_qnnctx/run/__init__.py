"""Executing an Artifact on a leased board."""
