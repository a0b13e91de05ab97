"""Inputs on which a version of the product was wrong, played through the commands, each with its right value."""
