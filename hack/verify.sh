#!/usr/bin/env bash
# Checks everything that needs no server: form, vet, lint, house rules, modules
# and generated files. It changes nothing. Every check runs, and the failed ones
# are named at the end with what to run to mend them.
#
# Usage: hack/verify.sh
source "$(dirname "$0")/lib.sh"

failed=()

# check NAME MEND COMMAND [ARG]... runs one check.
check() {
  local name=$1 mend=$2
  shift 2
  hack/step.sh "$name" "$@" || failed+=("$name; to mend it: $mend")
}

formatted() {
  local files
  files=$(gofmt -l cmd hack pkg test)
  [[ -z $files ]] || { printf 'not formatted:\n%s\n' "$files"; return 1; }
}

scripts() {
  local script
  for script in .ci/run hack/*.sh; do
    bash -n "$script"
  done
  # Not everyone has it, and there is no module for it.
  ! command -v shellcheck >/dev/null || shellcheck --external-sources --severity=warning .ci/run hack/*.sh
}

# vet vets every package of the module in a directory with one of its modfiles.
# It compiles what it vets, so that each build after it finds the cache warm.
vet() { go vet -C "$1" -modfile="$2" -tags="${3-}" ./...; }

lint() (
  tools=$PWD/hack/tools/go.mod
  cd "$1" || exit
  go tool -modfile="$tools" golangci-lint run ./...
)

export -f formatted scripts vet lint

run() { check "$1" "$2" bash -euo pipefail -c "$3"; }

run "gofmt" "make fix" formatted
run "shell scripts" "read the message" scripts
check "house rules" "each message says how" go test ./test/house
check "go.mod and go.sum of every module" "make tidy" hack/tidy.sh --check
run "vet the library" "read the message" "vet . go.mod"
run "vet the library, newest k8s.io/*" "read the message; the library must compile against both" "vet . go-0.37.mod"
for modfile in $(kube_modfiles); do
  run "vet the programs, $modfile" "read the message; the programs must compile against each minor" "vet cmd $modfile $(build_tag "$modfile")"
done
run "lint the library" "make fix, then read what is left" "lint ."
run "lint the programs" "make fix, then read what is left" "lint cmd"
check "known vulnerabilities" "update what is named" hack/vulncheck.sh
check "generated files" "make generate" hack/generate.sh --check

if ((${#failed[@]})); then
  printf '\nFAILED: %s\n' "${failed[@]}" >&2
  exit 1
fi
