#!/usr/bin/env bash
# On a fresh GPU machine with Python 3.11+ and nvcc: install, check every kernel on the GPU, then measure
# the short plan until MINUTES have passed since the start. Leaves correctness.json, measure.log and
# NAME.jsonl in $OUT; run again with the same $OUT it goes on with NAME.jsonl where compiler, driver and
# sources are still the same.
#
#   bash cuda/on_gpu.sh MINUTES [NAME] [WHEELS]
#
# WHEELS is a folder of carried wheels (make gpu-wheels); without it packages come from PyPI, and pycuda
# is built here.
#
# Ends with 0 where the plan is finished, 130 where the time was up first; 1 where a kernel is wrong on this
# GPU or installing failed, 2 where something (MINUTES too) is missing or NAME.jsonl is of another session, 3 where points
# could not be measured or no time was left to, 4 where the GPU failed, 137 where it did not stop in time.
set -euo pipefail
cd "$(dirname "$0")/.."
minutes=${1:-} name=${2:-measured} wheels=${3:-}
refuse() { printf '%s (see the head of cuda/on_gpu.sh)\n' "$1" >&2; exit 2; }
[[ $minutes =~ ^[1-9][0-9]{0,5}$ ]] || refuse "MINUTES is a whole number from 1 to 999999, not '$minutes'"
[[ $name =~ ^[A-Za-z0-9_.-]+$ ]] || refuse "NAME is a file's name without its ending, not '$name'"
[ -z "$wheels" ] || [ -d "$wheels" ] || refuse "WHEELS is a folder, and there is no '$wheels'"
seeds=5  # of the inputs that every kernel is checked on
out=${OUT:-build/on_gpu} site=$PWD/build/gpu_site
mkdir -p "$out"
export PYTHONUNBUFFERED=1
python3 -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed")'
command -v nvcc >/dev/null || { echo "nvcc is needed to compile the kernels (cuda/README.md, Measure your own GPU)" >&2; exit 2; }

needs=('pycuda==2026.1' 'numpy>=2.0' 'pydantic>=2.8' 'ruamel.yaml>=0.18.6' 'rich>=13.7' 'typer>=0.15')
from=(); if [ -n "$wheels" ]; then from=(--no-index --find-links "$wheels"); fi
python3 -m pip install --quiet --disable-pip-version-check --no-compile --upgrade --target "$site" "${from[@]}" \
  "${needs[@]}"
export PYTHONPATH=$PWD:$site:$PWD/tests/support
echo "installed after $SECONDS s"

python3 tests/cuda/emulated.py libcuda.so.1 "$seeds" >"$out/correctness.json"
python3 -m json.tool "$out/correctness.json"
echo "kernels checked after $SECONDS s"

left=$((60 * minutes - SECONDS))
if [ "$left" -le 0 ]; then echo "no time is left to measure" >&2; exit 3; fi
status=0
# An interrupt at the end of the time keeps every finished point.
timeout --preserve-status --signal=INT --kill-after=60 "$left" python3 -m cuda.measure --plan kimi_k2_6 --short --resume \
  --out "$out/$name.jsonl" 2>&1 | tee "$out/measure.log" || status=$?
echo "measured after $SECONDS s, exit $status"
exit "$status"
