#!/bin/sh
# Runs a command in a container made of namespaces alone: its own processes, mounts, /dev/shm, IPC and
# host name, and nothing of this machine but /usr (read-only), the GPU, and what lull needs mounted in.
# Root, or an ordinary user where user namespaces are allowed.
#
#   namespace.sh FOLDER COMMAND [WORD..]     FOLDER: that of lulld's socket, as /run/lull
#
# LULL=/path: an installation or build of lull outside /usr. SIMGPU_DEVICE=/path: a simulated GPU's file.
set -eu
[ $# -ge 2 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2; }
folder=$(realpath "$1")
shift
user=
[ "$(id -u)" = 0 ] || user="--user --map-root-user"
export LULL="${LULL:-}" SIMGPU_DEVICE="${SIMGPU_DEVICE:-}"

# shellcheck disable=SC2086  # no user is no word
exec unshare $user --mount --propagation private --pid --fork --kill-child --ipc --uts \
  sh -euc '
  folder=$1
  shift
  into() {  # FILE-OR-FOLDER PLACE: read-only
    mount --bind "$1" "$2" && mount -o remount,bind,ro "$2"
  }
  mount -t tmpfs -o mode=755 none /mnt  # in here only
  cd /mnt
  mkdir usr proc dev dev/shm etc run run/lull old
  mkdir -m 1777 tmp
  into /usr usr
  into "$folder" run/lull
  for name in bin sbin lib lib64; do
    [ ! -L "/$name" ] || ln -s "$(readlink "/$name")" "$name"
    [ -L "/$name" ] || [ ! -d "/$name" ] || { mkdir "$name"; into "/$name" "$name"; }
  done
  for name in ld.so.cache passwd group; do
    [ ! -e "/etc/$name" ] || { : > "etc/$name"; into "/etc/$name" "etc/$name"; }
  done
  for name in null zero random urandom $(cd /dev; ls -d nvidia* 2>/dev/null || true); do
    [ ! -c "/dev/$name" ] || { : > "dev/$name"; mount --bind "/dev/$name" "dev/$name"; }
  done
  mount -t tmpfs -o mode=1777 none dev/shm
  mount -t proc proc proc || echo "namespace.sh: no /proc in here" >&2
  if [ -n "$LULL" ]; then
    mkdir -p ".$LULL"
    into "$LULL" ".$LULL"
  fi
  if [ -n "$SIMGPU_DEVICE" ]; then
    : > run/simgpu
    mount --bind "$SIMGPU_DEVICE" run/simgpu
    SIMGPU_DEVICE=/run/simgpu
  else
    unset SIMGPU_DEVICE
  fi
  pivot_root . old
  cd /
  umount -l old
  rmdir old
  hostname container 2>/dev/null || true
  unset LULL LULL_SOCKET XDG_RUNTIME_DIR TMPDIR
  HOME=/tmp PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin
  export HOME PATH SIMGPU_DEVICE
  exec "$@"
' sh "$folder" "$@"
