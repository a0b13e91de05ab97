"""The site: settings, addresses, servers and their supervision. Importable without Django."""
