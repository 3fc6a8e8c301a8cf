"""What `barnabas pipeline init` copies into a project: each module is a pipeline as its user gets it."""
