"""What its network can do, alone or with a host that the user names."""
