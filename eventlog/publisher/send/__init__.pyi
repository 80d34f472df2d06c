from .cycle import Rebuilt as Rebuilt
from .cycle import build_recorded as build_recorded
from .cycle import dry_run as dry_run
from .cycle import recorded_ids as recorded_ids
from .cycle import recover as recover
