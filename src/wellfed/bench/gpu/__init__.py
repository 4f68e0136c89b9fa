"""What its GPUs can do."""
