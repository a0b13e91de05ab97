"""The pure half: values, effects, moves, the kernel, gates and budgets. No I/O, no clock, no Django."""
