from .connection import connect as connect
from .connection import describe as describe
from .connection import dialect_of as dialect_of
from .connection import open_session as open_session
from .connection import parse_url as parse_url
from .connection import refuse_pooling as refuse_pooling
from .locate import locate_log as locate_log
from .locate import new_log as new_log
