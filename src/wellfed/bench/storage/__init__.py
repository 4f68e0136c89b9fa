"""What its storage can do."""
