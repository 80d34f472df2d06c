#!/bin/sh
# The entry point of the service `publisher` of compose.yaml: it runs eventlog. After exit code 2 (wrong configuration)
# or 3 (the receiver answered fatal) a person has to correct the cause, and the restart policy of Docker must not start
# the publisher again: the container stays, unhealthy and without the lock of the log, and logs one line a minute until
# it is stopped or restarted.
eventlog "$@" &
publisher=$!
trap 'kill -TERM "$publisher" 2>/dev/null' TERM INT
wait "$publisher"
code=$?
while kill -0 "$publisher" 2>/dev/null; do # a signal has ended the wait
    wait "$publisher"
    code=$?
done
case $code in 2 | 3) ;; *) exit "$code" ;; esac
rm -f "${EVENTLOG_PUBLISHER_HEALTH_FILE:-}"
stopped=
trap 'stopped=1' TERM INT
while [ -z "$stopped" ]; do
    echo "the publisher ended with exit code $code and stays down: correct the cause, then restart the container" >&2
    seconds=0
    while [ -z "$stopped" ] && [ "$seconds" -lt 60 ]; do
        sleep 1 # a signal is noticed when it ends
        seconds=$((seconds + 1))
    done
done
exit "$code"
