"""Ctrl-C while the main thread waits inside the library.

Python's own handler can only run between two instructions of Python, and a wait in C is one.  So the bytes that Python writes for
each signal (signal.set_wakeup_fd) are read by a small thread, which aborts the communicators that are inside a call and stay
there: the call returns, and Python raises KeyboardInterrupt.  That costs the calls nothing.  A program with a SIGINT handler of
its own is unchanged: the handler runs when the call returns."""
import os
import signal
import sys
import threading
import time
import weakref
from typing import Any, List

live: 'weakref.WeakSet[Any]' = weakref.WeakSet()                # all communicators
_started = False
GRACE_S = 0.1


def _all() -> List[Any]:
    while True:
        try:
            return list(live)
        except RuntimeError:                                    # another thread has made one meanwhile
            pass


def _is_stuck() -> bool:
    """Is the main thread still in the same call?  A call that returns by itself is not aborted."""
    main = threading.main_thread().ident or 0
    frame = sys._current_frames().get(main)
    at = frame.f_lasti if frame else 0
    time.sleep(GRACE_S)
    return frame is not None and sys._current_frames().get(main) is frame and frame.f_lasti == at


def _look(read: int, others: int) -> None:
    while True:
        signals = os.read(read, 4096)
        if not signals:
            return
        if others != -1:                                        # other handlers
            try:
                os.write(others, signals)
            except OSError:
                pass
        if signal.SIGINT in signals and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            # Python lets this thread run only while the main thread is in C, or has seen the signal.
            if any(comm._inside for comm in _all()) and _is_stuck():
                for comm in _all():
                    if comm._inside:
                        comm._end(b'interrupted from the keyboard')


def watch() -> None:
    """Begin, once for the process; only the main thread can."""
    global _started
    if _started or threading.current_thread() is not threading.main_thread():
        return
    read, write = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(write, False)
    others = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    threading.Thread(target=_look, args=(read, others), name='coll-interrupt', daemon=True).start()
    _started = True


def _forked() -> None:                                          # the thread is not in the child
    global _started
    if _started:
        signal.set_wakeup_fd(-1)
    _started = False


os.register_at_fork(after_in_child=_forked)
