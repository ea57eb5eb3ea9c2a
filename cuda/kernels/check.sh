#!/bin/sh
# Compiles every kernel of the set for each chip that the project supports, with warnings as errors, and checks that the
# embedded PTX is of these sources. It needs nvcc and no GPU. Chips can be named: check.sh sm_80 sm_90
set -eu
cd "$(dirname "$0")"
command -v nvcc >/dev/null || { echo "check.sh: nvcc is not in PATH" >&2; exit 2; }
[ $# -gt 0 ] || set -- sm_70 sm_80 sm_90
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
for file in *.cu; do
    for arch in "$@"; do
        nvcc -arch="$arch" -std=c++17 -Werror all-warnings --resource-usage -cubin -o "$out/kernel.cubin" "$file" 2>"$out/log" ||
            { cat "$out/log" >&2; echo "check.sh: $file for $arch does not compile" >&2; exit 1; }
        # A kernel that spills registers to memory is slow, and nothing else would say so.
        echo "$file $arch: $(sed -n 's/.*Used \([0-9]* registers\).*/\1/p' "$out/log" | sort -rn | head -n 1)," \
            "$(sed -n 's/.* \([0-9]* bytes spill stores\).*/\1/p' "$out/log" | sort -rn | head -n 1)"
    done
done
go test -count=1 -run 'TestSets|TestSources$' . ./internal/gen
