"""The pages. Each view finds what the reader may see, lets `reading` say it or `actions` do it, and renders."""
