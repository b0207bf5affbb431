"""What the operator wants, and what differs from it."""
