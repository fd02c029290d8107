"""How fast and how small samplekit is beside its peers, as ratios: `python -m benchmarks`."""
