"""The default level of loggers."""


def get_log_level() -> str:
    """The default level."""
    return "WARNING"
