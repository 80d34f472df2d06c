"""Tables of a lake that follow a class: live copies, their histories, and their verification."""
