#!/bin/sh
# Start this site; the argument is the prepared folder with its data. It runs until it is interrupted.
data=$(realpath "${1:?give the folder of prepared data}") || exit 2
CDPATH= cd -- "$(dirname -- "$0")" && exec feal deploy site . --data "$data"
