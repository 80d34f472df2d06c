"""CloudEvents 1.0.2 in JSON: changes as events for any receiver of web hooks or topics
(formats/cloudevents.md).
"""
