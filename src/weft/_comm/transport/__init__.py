"""Authenticated connections: sockets, TLS, frames, and the threads that read them."""
