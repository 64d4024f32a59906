#!/bin/sh
# Run this once at the site. It creates the key that identifies the site; node.key never leaves this machine.
set -eu
umask 077
CDPATH= cd -- "$(dirname -- "$0")"
test ! -e node.key || { echo "A key exists already: remove node.key to create a new one." >&2; exit 2; }
ssh-keygen -q -t ecdsa -b 384 -N "" -C {{ name }} -f node.key
echo "Send node.key.pub to the coordinator, where it is stored as keys/{{ name }}.pub."
