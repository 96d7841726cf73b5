#!/usr/bin/env bash
# Writes the golden files anew: runs the tests of each package that has an
# -update flag with it.
#
# Usage: hack/generate.sh [--check]
# With --check this happens in a copy, and a difference is an error.
source "$(dirname "$0")/lib.sh"

# golden_packages prints the packages whose tests write files when told to.
golden_packages() {
  grep -rlE 'flag\.Bool(Var)?\(.*"update"' --include='*_test.go' pkg test | xargs -r -n1 dirname | sort -u | sed 's#^#./#'
}

generate() {
  local packages
  mapfile -t packages < <(golden_packages)
  ((${#packages[@]} == 0)) || go test -vet=off -count=1 "${packages[@]}" -update
}

case ${1-} in
  "") generate ;;
  --check)
    copy=$(mktemp -d)
    trap 'rm -rf "$copy"' EXIT
    cp -r go.mod go.sum pkg test "$copy"
    (cd "$copy" && generate)
    for dir in pkg test; do
      diff -ru "$dir" "$copy/$dir"
    done
    ;;
  *) die "usage: hack/generate.sh [--check]" ;;
esac
