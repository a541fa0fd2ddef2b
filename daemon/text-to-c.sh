#!/bin/sh
# Prints a text file as C string literals, a line each: how org.reclaimd.Control.varlink gets into the daemon.
set -eu
exec sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/^/"/' -e 's/$/\\n"/' -- "$1"
