"""No test may reach a model hub, and no property may fail because the machine is busy."""

import os

from hypothesis import HealthCheck, settings

os.environ["HF_HUB_OFFLINE"] = "1"
settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("house")
