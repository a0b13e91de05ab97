"""Runs of agents: the engine, the machines, and everything that keeps, drives and shows them."""
