# jaxlib is compiled, and its wheels have no stubs; these are the names that jax's own annotations use.
class Client: ...

class Device:
    id: int
    platform: str
    process_index: int
    device_kind: str
