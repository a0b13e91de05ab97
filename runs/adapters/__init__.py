"""Adapters to the world behind the engine's ports: models, tools, files, secrets. Settings come in as parameters."""
