from . import consumers as consumers
from .consumers import ConsumerStart as ConsumerStart
from .consumers import consumer_row as consumer_row
from .consumers import highest_row as highest_row
from .consumers import read_consumers as read_consumers
