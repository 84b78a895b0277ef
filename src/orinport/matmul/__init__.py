"""Matrix products on the DLA: plans, each a network that goes the same way as any other."""
