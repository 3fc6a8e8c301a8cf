"""The pipelines that `barnabas pipeline init` copies into a project, as their users get them."""
