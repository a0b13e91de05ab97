"""The read side: a run's data for pages, sockets, exports and commands. It writes nothing."""
