"""The prompts of each machine: short, versioned, shown in the inspector exactly as sent."""
