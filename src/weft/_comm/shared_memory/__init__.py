"""Memory shared by processes of one host: its layout, streams through it, and buffers lent to peers."""
