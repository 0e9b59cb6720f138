"""`weft top`: what the ranks of a running job do, as its launcher tells."""
