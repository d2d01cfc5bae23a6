"""Ctrl-C while native code runs; wake-up sockets of others; cancelled calls."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals are sent the POSIX way")

ENDLESS = """
import numpy as np, sys
from runtime_programs import count_package
from pliant.runtime.executable import Executable
f = Executable(count_package(), threads={threads})
state = np.zeros(64, np.int64)
f(state, 1)
{before}
for _ in range(2):
    print("ready", flush=True)
    try:
        f(state, 0)
        print("it ended")
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    assert (f(np.zeros(8, np.int64), 3) == 3).all()
"""


def interrupt_twice(child: subprocess.Popen[str]) -> None:
    """Press Ctrl-C in both endless calls of the child."""
    assert child.stdout is not None
    for _ in range(2):
        assert child.stdout.readline() == "ready\n", child.communicate(timeout=10)[1]
        time.sleep(0.1)  # let it get into native code; too early is no harm, the interrupt is then Python's own
        child.send_signal(signal.SIGINT)
        assert child.stdout.readline() == "interrupted\n"
    assert child.wait(timeout=60) == 0


@pytest.mark.parametrize("threads", [1, 2])
def test_ctrl_c_ends_an_endless_call(start: Callable[..., subprocess.Popen[str]], threads: int) -> None:
    interrupt_twice(start(ENDLESS.format(threads=threads, before="")))


def test_ctrl_c_in_a_forked_child(start: Callable[..., subprocess.Popen[str]]) -> None:
    """The child watches for itself; its parent, in a call of its own, is not disturbed."""
    before = """
import os, signal, time
here, there = os.pipe()
child = os.fork()
if child:
    print("ready", flush=True)
    assert os.read(here, 1) == b"."  # the child is where an interrupt is caught
    time.sleep(0.1)
    os.kill(child, signal.SIGINT)
    assert os.waitpid(child, 0)[1] == 0
    print("interrupted", flush=True)
else:
    try:
        os.write(there, b".")
        f(state, 0)
    except KeyboardInterrupt:
        os._exit(0)
    os._exit(1)
"""
    child = start(ENDLESS.format(threads=2, before=before))
    assert child.stdout is not None
    assert [child.stdout.readline() for _ in range(2)] == ["ready\n", "interrupted\n"]
    interrupt_twice(child)


def test_an_interrupt_without_an_owner_ends_the_process(start: Callable[..., subprocess.Popen[str]]) -> None:
    child = start(ENDLESS.format(threads=2, before="print('ready', flush=True)\nf(state, 0)"))
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    time.sleep(0.1)  # let it get into native code; too early is no harm
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert child.returncode == -signal.SIGINT and "KeyboardInterrupt" in err


def test_the_wake_up_socket_of_others_is_left_alone(finish: Callable[..., str]) -> None:
    text = """
import signal, socket
import numpy as np
from runtime_programs import add_package
from pliant.runtime.executable import Executable
mine, other = socket.socketpair()
mine.setblocking(False)
signal.set_wakeup_fd(mine.fileno())
a = np.ones(16, np.float32)
Executable(add_package())(a, a)
print(signal.set_wakeup_fd(-1) == mine.fileno())
"""
    assert finish(text) == "True\n"


def test_calls_outside_the_main_thread_go_on(finish: Callable[..., str]) -> None:
    """Ctrl-C belongs to the main thread: it raises there, and a call of another thread ends when its own flag says so."""
    text = """
import os, signal, threading, time
import numpy as np
from runtime_programs import count_package
from pliant.runtime.executable import Executable
from pliant.support.errors import CancelledError
f = Executable(count_package(), threads=2)
f(np.zeros(4, np.int64), 1)
(slot,) = f._caller.slots.values()
answer = []
def work():
    try:
        f(np.zeros(64, np.int64), 0)
    except CancelledError as e:
        answer.append(e.what)
thread = threading.Thread(target=work)
thread.start()
time.sleep(0.1)
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(5)
except KeyboardInterrupt:
    time.sleep(0.1)
    print(thread.is_alive())
while thread.is_alive():  # a call that begins only now takes its flag back
    slot.frame.flag = 1
    thread.join(0.01)
print(answer)
"""
    assert finish(text) == "True\n['the call of `count` was stopped']\n"
