#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Prints QEMU's accelerator for guests with a kernel: kvm if it works here, or else tcg. A machine may have
/dev/kvm and yet not run a whole kernel. So the kernel is booted until it panics, because it has no root file
system."""

import argparse
import functools
import os
import subprocess

LIMIT = 10  # seconds; where KVM works, two are enough


# Not for longer than this process: the machine may only have been busy.
@functools.cache
def accelerator(kernel):
    """The accelerator for that kernel, the path of its image."""
    return "kvm" if os.access("/dev/kvm", os.R_OK | os.W_OK) and runs(kernel) else "tcg"


def runs(kernel):
    """Whether KVM runs the kernel to its end. QEMU exits when the kernel reboots after the panic."""
    cmd = (
        "qemu-system-x86_64", "-accel", "kvm", "-cpu", "max,la57=off", "-m", "512", "-nodefaults", "-no-reboot",
        "-display", "none", "-serial", "stdio", "-kernel", kernel, "-append", "console=ttyS0 panic=-1",
    )
    try:
        said = subprocess.run(cmd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              timeout=LIMIT, check=True).stdout
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError):
        return False
    return b"Kernel panic" in said


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kernel", help="the path of its image")
    print(accelerator(parser.parse_args().kernel))
