# Sourced by the scripts beside it: `make_venv EXTRAS` makes .venv with adrenoc, editable, of the
# versions in constraints.txt (scripts/lock).  Does nothing where it is up to date.  Needs $root (the
# source tree); with $newest it makes .venv.newest, of the newest versions.

bold='' red='' plain=''
if [ -t 1 ] && [ -t 2 ] && [ -z "${NO_COLOR:-}" ]; then
    bold=$'\033[1m' red=$'\033[1;31m' plain=$'\033[0m'
fi

say() { printf '%s==>%s %s\n' "$bold" "$plain" "$*"; }
fail() {
    printf '%serror:%s %s\n' "$red" "$plain" "$1" >&2
    [ -z "${2:-}" ] || printf '  %stry:%s %s\n' "$bold" "$plain" "$2" >&2
    exit 1
}

# A python on the PATH may be too old, or a launcher with nothing behind it: run it to know.
find_python() {
    local name
    for name in python3 python3.13 python3.12 python3.11 python3.10; do
        if "$name" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 14))' \
            >/dev/null 2>&1; then
            command -v "$name"
            return
        fi
    done
    fail "no Python 3.10 to 3.13 on the PATH" "apt-get install python3 python3-venv"
}

need_compiler() {
    local name
    for name in c++ g++ clang++; do
        if command -v "$name" >/dev/null 2>&1; then return; fi
    done
    fail "the OpenCL runtime is built on this machine, and no C++ compiler is on the PATH" \
        "apt-get install g++"
}

make_venv() {
    local extras=$1 python stamp wanted versions=(--constraint "$root/constraints.txt")
    venv=$root/.venv
    [ -z "${newest:-}" ] || venv=$root/.venv.newest versions=(--upgrade --upgrade-strategy eager)
    stamp=$venv/.adrenoc-$extras
    wanted=$(cat "$root/pyproject.toml" "$root/constraints.txt" | cksum)
    if [ -z "${newest:-}" ] && [ -x "$venv/bin/adrenoc" ] &&
        [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
        say "using ${venv##*/}"
        return
    fi
    python=$(find_python) || exit 1
    if [ ! -x "$venv/bin/python" ] || ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
        say "making ${venv##*/} with $("$python" --version)"
        rm -rf "$venv"
        "$python" -m venv "$venv" >"$root/.venv.log" 2>&1 || {
            rm -rf "$venv"
            fail "$python cannot make virtual environments (see .venv.log)" \
                "apt-get install python3-venv"
        }
        rm -f "$root/.venv.log"
    fi
    say "installing adrenoc[$extras] and TVM into ${venv##*/} (a few minutes the first time)"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
        "${versions[@]}" --editable "$root[$extras]" ||
        fail "pip could not install adrenoc (its words are above)"
    printf '%s\n' "$wanted" >"$stamp"
}
