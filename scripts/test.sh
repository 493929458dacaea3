#!/usr/bin/env bash
# Run the whole test suite, with the real compiler and emulator. Further arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh
venv="${VENV:-.venv}"
make_environment "$venv" test
exec "$venv/bin/python" -m pytest -n 2 "$@"
