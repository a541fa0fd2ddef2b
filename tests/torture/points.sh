#!/bin/sh
# Lists the test points of the sources named, once each, as the elements of a C array.
sed -n 's/.*RECLAIM_TEST_POINT(\("[a-z-]*"\)).*/\1,/p' "$@" | sort -u
