#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""accelerator.py KERNEL: prints QEMU's accelerator for guests with that kernel: kvm if it works here, or else
tcg. A machine may have /dev/kvm and yet not run a whole kernel. So the kernel is booted until it panics,
because it has no root file system. The answer holds until this machine boots again,
unless /dev/kvm becomes accessible, or no longer is."""

import os
import subprocess
import sys

LIMIT = 10  # seconds; where KVM works, two are enough
KNOWN = os.path.join(os.path.dirname(os.path.realpath(__file__)), "../build/qemu-tests/accelerator")


def accelerator(kernel):
    """The accelerator for that kernel, the path of its image."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return "tcg"
    return known() or remember("kvm" if runs(kernel) else "tcg")


def known():
    """The accelerator, if it has been found out."""
    try:
        with open(KNOWN, encoding="ascii") as f:
            boot, answer = f.read().split()
    except (FileNotFoundError, ValueError):
        return None
    return answer if boot == boot_id() else None


def remember(answer):
    os.makedirs(os.path.dirname(KNOWN), exist_ok=True)
    new = f"{KNOWN}.{os.getpid()}"
    with open(new, "w", encoding="ascii") as f:
        f.write(f"{boot_id()} {answer}\n")
    os.rename(new, KNOWN)
    return answer


def boot_id():
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as f:
        return f.read().strip()


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
    print(__doc__ if sys.argv[1].startswith("-") else accelerator(sys.argv[1]))
