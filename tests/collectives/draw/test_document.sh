#!/usr/bin/env bash
# What is generated in the documentation of collectives is current.
set -eu
exec bash "$MUSTER_SOURCE/collectives/draw/document" --check
