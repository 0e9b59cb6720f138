"""Tools around jobs of several processes: what starts them, shows them, and lets their nodes meet."""
