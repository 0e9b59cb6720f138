"""Tools around jobs: what they do, how their calls went, where they run, and where their nodes meet."""
