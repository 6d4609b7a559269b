"""One module for each sub-command; imported when it is used, and importing nothing heavy itself."""
