"""The read side: what pages, sockets, exports and commands show of a run. Nothing here writes."""
