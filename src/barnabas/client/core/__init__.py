"""The part of the clients without socket and clock: state machines that are told what arrived and what time it is.

Main classes: `Wire` (one connection's bytes), `Engine` (nodes, metadata, coordinators, requests, timers). Both fronts
(synchronous, asyncio) drive the same objects. Nothing here may import asyncio, socket, select, ssl, threading or time;
import-linter checks it.
"""
