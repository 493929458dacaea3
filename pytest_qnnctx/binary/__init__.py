"""What a context binary says about itself."""
