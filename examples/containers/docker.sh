#!/bin/sh
# Runs an image's program under this machine's lulld, by Docker. The image is not changed and needs
# glibc 2.17 or newer.
#
#   docker.sh IMAGE [COMMAND..]        PRIORITY=high  TASK=name  PREFIX=/usr (where lull is installed)
#                                    FOLDER=/run/lull (that of lulld's socket)  GPUS='--gpus all' (words that give it the GPU)
#
# Words for `docker run` before the image go into OPTIONS. Started by root in the container; for
# --user or userns-remap nothing changes, for the socket's folder is a read-only mount of its own.
set -eu
[ $# -ge 1 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2; }
library=${PREFIX:-/usr}/lib/lull

# shellcheck disable=SC2086  # OPTIONS and GPUS are words
exec docker run --rm ${GPUS---gpus all} \
  --volume "${FOLDER:-/run/lull}:/run/lull:ro" \
  --volume "$library:$library:ro" \
  --env LD_PRELOAD="$library/liblull.so" \
  --env LULL_RUN=1 \
  --env LULL_PRIORITY="${PRIORITY:-normal}" \
  --env LULL_NAME="${TASK:-}" \
  ${OPTIONS:-} "$@"
