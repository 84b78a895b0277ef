"""Values as text, JSON, SARIF, Markdown and HTML: pure functions."""
