"""The pages. Each view finds the reader's visible data, calls `reading` or `actions`, and renders."""
