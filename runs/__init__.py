"""Runs of agents: the engine, the machines, and the parts that store, drive and show them."""
