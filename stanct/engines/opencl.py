"""The OpenCL devices of this machine, as `clinfo` tells them."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass

from stanct.common.errors import EngineError

# Debian packages of a CPU device, and of what is needed to build programs for it.
PACKAGES = "clinfo pocl-opencl-icd ocl-icd-opencl-dev opencl-clhpp-headers"
_PLATFORM = re.compile(r"^\[\w+/\*\]\s+#DEVICES\s", re.MULTILINE)
_NAME = re.compile(r"^\[\w+/(\d+)\]\s+CL_DEVICE_NAME\s+(.*?)\s*$", re.MULTILINE)
_TYPE = re.compile(r"^\[\w+/(\d+)\]\s+CL_DEVICE_TYPE\s.*\bCL_DEVICE_TYPE_GPU\b", re.MULTILINE)


@dataclass(frozen=True)
class Device:
    """A device, by the numbers that CmdStan takes as OPENCL_PLATFORM_ID and OPENCL_DEVICE_ID."""

    platform: int
    number: int
    name: str
    gpu: bool

    def __str__(self) -> str:
        kind = "GPU" if self.gpu else "no GPU"
        return f"({self.platform}, {self.number}): {self.name}, {kind}"


def devices() -> list[Device] | None:
    """List the devices of all platforms, or return None where clinfo does not run."""
    try:
        done = subprocess.run(
            ["clinfo", "--raw"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = []
    for platform, told in enumerate(_PLATFORM.split(done.stdout)[1:]):
        gpus = {number for number in _TYPE.findall(told)}
        found += [
            Device(platform, int(number), name, number in gpus)
            for number, name in _NAME.findall(told)
        ]
    return found


def preferred() -> tuple[int, int]:
    """Return platform and number of the first GPU, or else of the first device.

    Platform 0 is often a processor that passes for a device, beside a platform that has a GPU.
    Where clinfo does not run, both are 0, CmdStan's own choice. Raises `EngineError` if there is no
    device.
    """
    found = devices()
    if found is None:
        return 0, 0
    if not found:
        raise EngineError(
            "There is no OpenCL device on this machine.",
            remedy="Install a driver. On Debian a CPU device comes with: "
            f"apt-get install {PACKAGES}",
        )
    best = min(found, key=lambda device: not device.gpu)
    return best.platform, best.number
