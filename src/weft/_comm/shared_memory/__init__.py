"""Memory that processes of one host have in common: its layout, streams through it, and buffers lent to peers."""
