"""What passes use."""
