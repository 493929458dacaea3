#!/usr/bin/env bash
# Judge the quickstart's model on Qualcomm's HTP emulator. Further arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh
venv="${VENV:-.venv}"
make_environment "$venv" sim
exec "$venv/bin/python" -m pytest conftest_examples/quickstart --board sim "$@"
