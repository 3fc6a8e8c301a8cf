"""For all tests."""

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell without job control starts what it puts into the background so, and every child inherits it: tests that
    # press Ctrl-C, here or in a process that they start, would wait for ever.
    signal.signal(signal.SIGINT, signal.default_int_handler)
