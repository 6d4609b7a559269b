#!/usr/bin/env bash
# Tests, lint and types from a clean checkout. Makes .venv on the first run; compiling llama.cpp then takes some
# minutes, and pip keeps the result, so that the next checkout does not compile again.
#   bash scripts/check.sh [pytest arguments]      PYTHON=python3.12 bash scripts/check.sh
set -euo pipefail
cd "$(dirname "$0")/.."

export PIP_NO_INPUT=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
python=.venv/bin/python

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
  "${PYTHON:-python3}" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
    || { echo "check.sh: Python 3.11 or newer is needed; name one with PYTHON=" >&2; exit 1; }
  "${PYTHON:-python3}" -m venv --clear .venv
fi

# Install again only when what is asked for has changed.
stamp=.venv/installed-from
if ! cmp -s pyproject.toml "$stamp"; then
  echo "check.sh: installing; the first time llama.cpp is compiled, which takes some minutes" >&2
  "$python" -m pip install --quiet --editable '.[dev]'
  cp pyproject.toml "$stamp"
fi

"$python" -m pytest "$@"
"$python" -m ruff check .
"$python" -m mypy
echo "All checks passed."
