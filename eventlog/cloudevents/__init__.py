"""CloudEvents 1.0.2 in JSON: changes as events that any receiver of web hooks or topics reads (spec/cloudevents.md)."""
