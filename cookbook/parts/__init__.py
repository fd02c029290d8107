"""What the recipes of reinforcement learning and preferences share: settings, tasks, a supervised start, the curve."""
