#!/bin/sh
# Runs an image's program under this machine's lulld, by Podman; as an ordinary user, too. The image is
# not changed and needs glibc 2.17 or newer.
#
#   podman.sh IMAGE [COMMAND..]        PRIORITY=high  TASK=name  PREFIX=/usr (where lull is installed)
#                                    FOLDER=/run/lull (that of lulld's socket)  GPUS='--device nvidia.com/gpu=all' (words that give it the GPU)
#
# Words for `podman run` before the image go into OPTIONS. Rootless containers are user namespaces:
# that the socket's folder is a read-only mount is what tells the program that root's lulld is root's.
# With SELinux, add --security-opt label=disable to OPTIONS, or a policy of your own for the socket.
set -eu
[ $# -ge 1 ] || { sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 2; }
library=${PREFIX:-/usr}/lib/lull

# GPUs by the container device interface (nvidia-ctk cdi generate).
# shellcheck disable=SC2086  # OPTIONS and GPUS are words
exec podman run --rm ${GPUS---device nvidia.com/gpu=all} \
  --volume "${FOLDER:-/run/lull}:/run/lull:ro" \
  --volume "$library:$library:ro" \
  --env LD_PRELOAD="$library/liblull.so" \
  --env LULL_RUN=1 \
  --env LULL_PRIORITY="${PRIORITY:-normal}" \
  --env LULL_NAME="${TASK:-}" \
  ${OPTIONS:-} "$@"
