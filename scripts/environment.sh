# Sourced by the other scripts: makes the virtual environment $1 (default .venv) with the extras $2.
# Works on a fresh Debian 12 or Ubuntu 22.04+ with Python 3.11 or newer; set PYTHON to choose one.

find_python() {
    local candidate
    for candidate in ${PYTHON:-} python3.11 python3.12 python3.13 python3.14 python3; do
        if command -v "$candidate" >/dev/null 2>&1 &&
            "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$candidate"
            return 0
        fi
    done
    echo "No Python 3.11 or newer was found. Install one, or name it: PYTHON=/path/to/python3.11 bash $0" >&2
    return 1
}

# Debian and Ubuntu ship Python without ensurepip; their package of it is asked for, never assumed.
need_venv_module() {
    "$1" -c 'import ensurepip, venv' 2>/dev/null && return 0
    local package as_root=""
    package="python$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv"
    [ "$(id -u)" = 0 ] || as_root="sudo"
    echo "Python's venv module is not installed: installing $package" >&2
    $as_root apt-get update -qq && $as_root apt-get install -y -qq "$package" ||
        { echo "Install $package and run this again." >&2; return 1; }
}

make_environment() {
    local folder="$1" extras="$2" python
    python="$(find_python)" || return 1
    need_venv_module "$python" || return 1
    [ -x "$folder/bin/python" ] || "$python" -m venv "$folder" || return 1
    # Installed already, and nothing has changed what is wanted since.
    [ "$folder/.extras-$extras" -nt pyproject.toml ] && return 0
    echo "Installing into $folder what is needed; this takes about half a minute." >&2
    "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile -e ".[$extras]" &&
        touch "$folder/.extras-$extras"
}
