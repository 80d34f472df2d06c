from .cycle import dry_run as dry_run
from .cycle import recorded_ids as recorded_ids
from .log_feed import Rebuilt as Rebuilt
from .log_feed import build_recorded as build_recorded
from .log_feed import recover as recover
