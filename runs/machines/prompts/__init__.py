"""What the models are told, per machine: short, versioned, shown in the inspector exactly as sent."""
