"""Django's SQLite backend for a process with many writing threads (`base.py`)."""
