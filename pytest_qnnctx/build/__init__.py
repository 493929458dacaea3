"""From a Model and a Target to an Artifact: toolchains, encodings, the store, provenance."""
