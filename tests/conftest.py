"""Settings shared by all tests: hypothesis draws the same examples in every run, so a red test stays red."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,  # shared machines are slow at times; slowness is not what these tests are about
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ci")
