"""Hangs of a part of an OSD on this host: of its device, or of one of its threads. Needs root.

A device hangs when the file system that its block file is in is frozen (fsfreeze): writes to the file wait in the kernel, for as
long as the file system stays frozen. A thread hangs when a debugger stops it (ptrace). The other threads go on.
"""
import ctypes
import os
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path

import harness

PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH = 0x4206, 0x4207, 17
#: The thread of the second core of an OSD of shoal's.
LAST_CORE = "osd-1"
#: `waitpid` for a thread that is no child of ours.
WALL = 0x40000000


def command(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode:
        raise harness.Failed(f"{' '.join(map(str, words))}: {done.stderr}")
    return done.stdout.strip()


class FrozenDisk:
    """The block file of an OSD, on a file system of its own."""

    def __init__(self, size="6G"):
        self.dir = Path(tempfile.mkdtemp(prefix="shoal-hang-"))
        self.image, self.mount, self.is_frozen = self.dir / "image", self.dir / "mount", False
        self.mount.mkdir()
        try:
            command("truncate", "-s", size, self.image)
            command("mkfs.ext4", "-q", "-F", self.image)
            command("mount", "-o", "loop", self.image, self.mount)
        except (OSError, harness.Failed):
            shutil.rmtree(self.dir, ignore_errors=True)
            raise

    def take(self, block):
        """Moves the block file of a stopped OSD here, and leaves a link to it."""
        command("cp", "--sparse=always", block, self.mount / "block")
        block.unlink()
        block.symlink_to(self.mount / "block")

    def freeze(self):
        command("fsfreeze", "-f", self.mount)
        self.is_frozen = True

    def thaw(self):
        if self.is_frozen:
            command("fsfreeze", "-u", self.mount)
            self.is_frozen = False

    def close(self):
        """After the OSD has ended. A daemon that was killed holds its file until its last request has ended."""
        self.thaw()
        harness.eventually(lambda: subprocess.run(["umount", str(self.mount)], capture_output=True).returncode == 0, 30)
        shutil.rmtree(self.dir, ignore_errors=True)


def why_no_frozen_disk():
    """The reason why no file system can be frozen here, or nothing."""
    if os.geteuid() != 0:
        return "a file system that freezes needs root"
    try:
        disk = FrozenDisk("64M")
        try:
            disk.freeze()
        finally:
            disk.close()
    except (OSError, harness.Failed) as error:
        return f"no file system can be frozen here: {error}"
    return ""


class StoppedThread:
    """One thread of a process. A debugger's calls must all come from the thread that seized it, so one waits for the end."""

    def __init__(self, pid, name):
        tasks = Path(f"/proc/{pid}/task").iterdir()
        self.tid = next(int(task.name) for task in tasks if (task / "comm").read_text().strip() == name)
        self.ending, self.stopped, self.problem = threading.Event(), threading.Event(), None
        self.thread = threading.Thread(target=self.hold, daemon=True)
        self.thread.start()
        self.stopped.wait()
        if self.problem:
            raise self.problem

    def hold(self):
        try:
            self.ptrace(PTRACE_SEIZE)
            self.ptrace(PTRACE_INTERRUPT)
            os.waitpid(self.tid, WALL)
        except OSError as error:
            self.problem = error
        self.stopped.set()
        self.ending.wait()
        if self.problem is None:
            self.ptrace(PTRACE_DETACH)

    def ptrace(self, request):
        libc = ctypes.CDLL(None, use_errno=True)
        none = ctypes.c_void_p(0)
        if libc.ptrace(ctypes.c_long(request), ctypes.c_long(self.tid), none, none) == -1:
            raise OSError(ctypes.get_errno(), f"ptrace {request:#x} of thread {self.tid}")

    def go_on(self):
        self.ending.set()
        self.thread.join()


class HangingCluster(harness.Cluster):
    """A cluster whose first OSD has its block file on a disk that can be frozen."""

    def __init__(self, *options, osds=3):
        self.disk = FrozenDisk()
        try:
            super().__init__("--store", "disk", "--size", "4G", *options, osds=osds)
            self.stop_daemon("osd.0")
            self.disk.take(self.dir / "osd.0" / "block")
            self.start_daemon("osd.0")
        except BaseException:
            self.disk.close()
            raise

    def close(self):
        self.disk.thaw()
        super().close()
        self.disk.close()
