"""Connections that prove the job's key: sockets, TLS, frames, and the threads that read them."""
