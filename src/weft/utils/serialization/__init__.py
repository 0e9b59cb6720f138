"""Settings of saving and loading: `weft.utils.serialization.config`."""
