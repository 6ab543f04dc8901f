#!/bin/sh
# Brings the Debian packages that are missing, if we may install them; else says what to install.
# usage: scripts/debian_packages.sh PACKAGE...   with PYTHON for python3-venv
# Without them the tests that need them are skipped; in CI, which sets CI, nothing may be.
set -eu

is_there() {
  case $1 in
    python3-venv) "${PYTHON:-python3}" -c 'import ensurepip' 2>/dev/null ;;
    chromium) command -v chromium >/dev/null ;;
    dataset-fashion-mnist) [ -d /usr/share/datasets/fashion-mnist ] ;;
  esac
}

install() {
  command -v apt-get >/dev/null || return 1
  if [ "$(id -u)" = 0 ]; then as_root="env"; else as_root="sudo -n"; fi
  $as_root true 2>/dev/null || return 1
  $as_root apt-get update -q || return 1
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@"
}

missing=
for package in "$@"; do
  is_there "$package" || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
# shellcheck disable=SC2086 # several words
install $missing >&2 && exit 0
echo "missing:$missing; on Debian: sudo apt-get install --no-install-recommends$missing" >&2
[ -z "${CI:-}" ]
