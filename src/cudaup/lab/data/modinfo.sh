#!/bin/sh
# Stands in for modinfo on a lab host: knows the simulated NVIDIA module, and asks the real one for the rest.
module=/etc/cudaup-simulated/modinfo
case "$*" in
"-F version nvidia") cat "$module/version" ;;
"-F license nvidia") cat "$module/license" ;;
*) exec /usr/lib/cudaup-lab/modinfo "$@" ;;
esac
