"""The SDK's logs, turned into causes and next steps by a table of rules."""
