"""Qualcomm's SDK: found, set up, and its three tools run in turn."""
