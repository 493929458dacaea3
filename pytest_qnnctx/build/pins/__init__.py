"""Binaries that are pinned by hash: the manifest, where they are kept, and fetching them."""
