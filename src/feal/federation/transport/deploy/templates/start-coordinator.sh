#!/bin/sh
# Start the coordinator; it runs until it is interrupted.
CDPATH= cd -- "$(dirname -- "$0")" && exec feal deploy coordinator .
