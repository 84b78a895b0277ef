"""The catalogue: one module a rewrite, each with one instance `REWRITE`. Modules that begin with _ are helpers."""
