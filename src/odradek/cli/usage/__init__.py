"""What commands understand, and what they say when they do not."""
