"""The level of loggers that are told none."""


def get_log_level() -> str:
    """The default level."""
    return "WARNING"
