"""The monitor of a publisher: metrics, health, a status page (``[monitor]``, extra ``monitor``)."""
