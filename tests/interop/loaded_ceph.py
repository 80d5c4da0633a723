"""Runs stock's `ceph` in processes that begin with its modules loaded.

Two thirds of the processor time of a `ceph` command are the start of Python and the imports. One process for each suite has done both,
and forks for each command. The child executes stock's unchanged program as `__main__`, with its own arguments, environment, standard
streams and process group, so that a command is as separate as one that a shell starts.

As a program, this file is that process: it serves the socket that is its standard input, until the suite ends.
"""
import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import traceback
from pathlib import Path

#: What a request may take.
REQUEST_BYTES_MAX = 1 << 17


class Process:
    """A command that runs; as much of `subprocess.Popen` as the harness needs."""

    def __init__(self, pid, status):
        self.pid, self.status, self.returncode = pid, status, None

    def wait(self, timeout=None):
        if self.returncode is None:
            if not select.select([self.status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("ceph", timeout)
            # Without a status the serving process has died.
            told = os.read(self.status, 16)
            os.close(self.status)
            self.returncode = int(told) if told else -signal.SIGKILL
        return self.returncode


class Loaded:
    """The serving process, started with the first command."""

    def __init__(self):
        self.lock, self.socket = threading.Lock(), None

    def start(self, args, env, stdin, stdout, stderr):
        """A `Process` for `ceph ARGS`, or None where it must be started in the plain way. The streams are file descriptors."""
        request = json.dumps({"args": args, "env": dict(os.environ if env is None else env), "cwd": os.getcwd()}).encode()
        if len(request) > REQUEST_BYTES_MAX:
            return None
        ours, theirs = os.pipe()
        try:
            with self.lock:
                if self.socket is None:
                    self.socket = launch()
                if self.socket is False:
                    os.close(ours)
                    return None
                socket.send_fds(self.socket, [request], [stdin, stdout, stderr, theirs])
                pid = int(self.socket.recv(16))
        finally:
            os.close(theirs)
        return Process(pid, ours)


def launch():
    """The socket of a new serving process; False where `ceph` is not a script of this system's Python."""
    ceph = shutil.which("ceph")
    first = Path(ceph).open("rb").readline().decode(errors="replace") if ceph else ""
    if not first.startswith("#!") or "python" not in first:
        return False
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        # Of a group of its own: a suite that is killed leaves it to see the socket's end.
        subprocess.Popen([*first[2:].split(), __file__, ceph], stdin=theirs, process_group=0)
    return ours


def serve(program):
    sock = socket.socket(fileno=os.dup(0))
    code = compile(Path(program).read_text(), program, "exec")
    # Under another name it imports its modules and does nothing else.
    exec(code, {"__name__": "loaded_ceph", "__file__": program})  # pylint: disable=exec-used
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running = {}
    while True:
        ready = select.select([sock, woken], [], [])[0]
        if woken in ready:
            os.read(woken, 4096)
            end_children(running)
        if sock in ready:
            request, fds, _flags, _address = socket.recv_fds(sock, REQUEST_BYTES_MAX, 4)
            if not request:
                return
            *streams, status = fds
            pid = os.fork()
            if pid == 0:
                for fd in (status, woken, wake):
                    os.close(fd)
                sock.close()
                run(code, program, json.loads(request), streams)
            for fd in streams:
                os.close(fd)
            # Here too, so that it is so before the suite may kill the group.
            with contextlib.suppress(OSError):
                os.setpgid(pid, pid)
            running[pid] = status
            sock.send(str(pid).encode())


def end_children(running):
    """Tells the exit status of each child that has ended."""
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        with contextlib.suppress(OSError), os.fdopen(running.pop(pid), "wb", 0) as told:
            told.write(str(os.waitstatus_to_exitcode(status)).encode())


def run(code, program, request, streams):
    """Becomes the command. Does not return."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
        os.close(fd)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = [program, *request["args"]]
    exit_code = 0
    try:
        exec(code, {"__name__": "__main__", "__file__": program, "__builtins__": __builtins__})  # pylint: disable=exec-used
    except SystemExit as ending:
        exit_code = ending.code if isinstance(ending.code, int) else 0 if ending.code is None else 1
        if isinstance(ending.code, str):
            print(ending.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        exit_code = 1
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(exit_code & 0xff)


if __name__ == "__main__":
    serve(sys.argv[1])
