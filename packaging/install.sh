#!/bin/sh
# Installs Regatta for the user who runs this script: the program, its manual, its completions and
# its systemd user unit. Checks every download against SHA256SUMS, and SHA256SUMS against its
# signature if the release is signed and ssh-keygen is installed. Nothing needs root.
#
#   sh install.sh [--prefix DIR] [--from URL-OR-DIRECTORY] [--remove]
#
# --prefix DIR   where to install (~/.local)
# --from PLACE   where the files of the release are, if not at their usual address
# --remove       remove what an earlier run installed
#
# The whole script is in functions that the last line calls, so that half a download does nothing.
set -eu

version='@VERSION@'
url='@URL@'
signer='@SIGNER@'
target=x86_64-unknown-linux-gnu

fail() {
  echo "error: $1" >&2
  [ $# -lt 2 ] || echo "  hint: $2" >&2
  exit 1
}

# fetch NAME: puts a file of the release into the working directory.
fetch() {
  case $from in
    http://* | https://*)
      if command -v curl >/dev/null; then
        curl --fail --silent --show-error --location --output "$1" "$from/$1"
      elif command -v wget >/dev/null; then
        wget --quiet --output-document="$1" "$from/$1"
      else
        fail "neither curl nor wget is installed" "apt install curl"
      fi || fail "could not download $from/$1"
      ;;
    *) cp "$from/$1" "$1" || fail "could not read $from/$1" ;;
  esac
}

# Refuses systems on which the program cannot start.
check_system() {
  [ "$(uname -s)" = Linux ] ||
    fail "Regatta runs on Linux, and this is $(uname -s)" "use a Linux virtual machine or container: docs/platforms.md"
  [ "$(uname -m)" = x86_64 ] ||
    fail "this release is for x86_64, and this machine is $(uname -m)" "build it from source: cargo install --locked --path crates/regatta"
  # Linux 5.6 is the first with all system calls that the program uses.
  kernel=$(uname -r | sed -n 's/^\([0-9][0-9]*\.[0-9][0-9]*\).*/\1/p')
  if [ -n "$kernel" ] && [ "$(printf '5.6\n%s\n' "$kernel" | sort -V | head -n 1)" != 5.6 ]; then
    fail "Regatta needs Linux 5.6 or later, and this machine has $kernel" "use a newer system, or a virtual machine with one: docs/platforms.md"
  fi
  glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null | sed -n 's/^glibc //p')
  [ -n "$glibc" ] ||
    fail "this release needs glibc, and this system has another C library" "use a container with Debian: docs/platforms.md"
  oldest=$(printf '2.28\n%s\n' "$glibc" | sort -V | head -n 1)
  [ "$oldest" = 2.28 ] || fail "this release needs glibc 2.28 or later, and this system has $glibc"
}

check_signature() {
  [ -n "$signer" ] || return 0
  fetch SHA256SUMS.sig
  if ! command -v ssh-keygen >/dev/null; then
    echo "note: the signature was not checked, because ssh-keygen is not installed" >&2
    return 0
  fi
  printf '%s\n' "$signer" >allowed_signers
  ssh-keygen -Y verify -f allowed_signers -I releases@regatta -n regatta-release -s SHA256SUMS.sig <SHA256SUMS >/dev/null 2>&1 ||
    fail "the signature of SHA256SUMS is wrong, so nothing was installed"
  echo "checked the signature of SHA256SUMS"
}

install_release() {
  check_system
  [ -n "$from" ] || fail "this script does not know where the release is" "sh install.sh --from URL-OR-DIRECTORY"
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  trap 'exit 1' HUP INT TERM
  cd "$work"
  name=regatta-$version-$target
  fetch SHA256SUMS
  check_signature
  fetch "$name.tar.gz"
  grep -F "  $name.tar.gz" SHA256SUMS >expected || fail "SHA256SUMS does not name $name.tar.gz"
  sha256sum --check --status expected 2>/dev/null || sha256sum -c expected >/dev/null 2>&1 ||
    fail "$name.tar.gz does not have the checksum in SHA256SUMS, so nothing was installed" "download it again"
  tar -xzf "$name.tar.gz"
  "$name/bin/regatta" --version >/dev/null || fail "the program does not start on this system"
  sed -i "s|^ExecStart=.* serve|ExecStart=$prefix/bin/regatta serve|" "$name/share/systemd/user/regatta.service"
  (cd "$name" && find . -type f | sort) >files
  while read -r file; do
    mkdir -p "$prefix/$(dirname "$file")"
    # A new file in place of the old one, so that a running daemon keeps its program.
    cp "$name/$file" "$prefix/$file.new"
    mv -f "$prefix/$file.new" "$prefix/$file"
  done <files
  # `regatta upgrade` names the place again.
  printf '%s\n' "$from" >"$prefix/share/doc/regatta/installed-from"
  echo ./share/doc/regatta/installed-from >>files
  cp files "$prefix/share/doc/regatta/installed-files"
  echo "installed regatta $version in $prefix"
  check_surroundings
}

# Names what is missing on this machine. Nothing of it stops the installation.
check_surroundings() {
  git=$(git --version 2>/dev/null | sed -n 's/^git version \([0-9.]*[0-9]\).*/\1/p')
  if [ -z "$git" ]; then
    echo "next: install git 2.39 or later, for example: apt install git"
  elif [ "$(printf '2.39\n%s\n' "$git" | sort -V | head -n 1)" != 2.39 ]; then
    echo "next: install git 2.39 or later; this machine has $git"
  fi
  found=$(command -v regatta || true)
  case $found in
    "$prefix/bin/regatta") ;;
    '') echo "next: put it on the PATH: export PATH=\"$prefix/bin:\$PATH\"" ;;
    *) echo "warning: another program called regatta comes first on the PATH: $found" >&2 ;;
  esac
  echo "try it: regatta demo"
}

remove_release() {
  list=$prefix/share/doc/regatta/installed-files
  [ -f "$list" ] || fail "there is no installation in $prefix" "name its directory: sh install.sh --remove --prefix DIR"
  while read -r file; do
    rm -f "$prefix/$file"
  done <"$list"
  rm -f "$list"
  rmdir "$prefix/share/doc/regatta" 2>/dev/null || true
  echo "removed regatta from $prefix; its data are still in ${XDG_DATA_HOME:-$HOME/.local/share}/regatta"
}

main() {
  prefix=${HOME:-}/.local
  from=$url
  action=install_release
  while [ $# -gt 0 ]; do
    case $1 in
      --prefix | --from)
        [ $# -gt 1 ] || fail "$1 needs a value"
        if [ "$1" = --prefix ]; then prefix=$2; else from=$2; fi
        shift
        ;;
      --remove) action=remove_release ;;
      *) fail "$1 is no option" "sh install.sh [--prefix DIR] [--from URL-OR-DIRECTORY] [--remove]" ;;
    esac
    shift
  done
  # The script changes its directory, so relative paths become absolute.
  case $prefix in /*) ;; *) prefix=$PWD/$prefix ;; esac
  from=${from%/}
  case $from in '' | /* | http://* | https://*) ;; *) from=$PWD/$from ;; esac
  "$action"
}

main "$@"
