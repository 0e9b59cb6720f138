"""What passes derive from and are run by."""
