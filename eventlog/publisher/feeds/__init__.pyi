from .queue import build_events as build_events
from .queue import read_window as read_window
