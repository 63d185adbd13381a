"""Trials for tests of the log."""

from adrenoc.ir.tuning_log import Status, Trial, TunedDevice


def trial(
    kernel: str = "k1",
    group: tuple[int, int, int] = (8, 4, 1),
    median_us: float = 10.0,
    status: Status = Status.OK,
    **more,
) -> Trial:
    """One trial of a kernel whose only action is its work-group."""
    return Trial(
        **{
            "kernel": kernel,
            "family": "map",
            "work": {"op": "map"},
            "actions": {"work_group": list(group)},
            "status": status,
            "median_us": median_us,
            "runs": 5,
            "target": "adreno:750",
            "gpu": "750",
            "device": TunedDevice(name="Adreno 750", driver="1.0"),
            **more,
        }
    )
