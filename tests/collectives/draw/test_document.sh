#!/usr/bin/env bash
# The generated parts of the documentation of collectives are current.
set -eu
exec bash "$MUSTER_SOURCE/collectives/draw/document" --check
