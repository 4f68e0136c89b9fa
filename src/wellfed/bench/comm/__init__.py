"""What its GPUs can do together."""
