"""Where layers run: regions on DLA and GPU, loadables, transitions, formats."""
