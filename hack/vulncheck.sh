#!/usr/bin/env bash
# Looks for known vulnerabilities in what the library and the programs call, with
# each of their modfiles, in the Go vulnerability database (vuln.go.dev, or what
# GOVULNDB names). Where that can't be reached nothing is checked: the script says
# so, and names the versions that would have been.
#
# Usage: hack/vulncheck.sh
source "$(dirname "$0")/lib.sh"

tools=$PWD/hack/tools/go.mod
database=${GOVULNDB:-https://vuln.go.dev}
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT

# in_copy DIRECTORY MODFILE COMMAND [ARG]... runs a command in a copy of a module
# that has the modfile as its go.mod: govulncheck takes no -modfile.
in_copy() (
  rm -rf "${copy:?}"/*
  tar --exclude=./.git --exclude=./.cache --exclude=./bin -cf - . | tar -xf - -C "$copy"
  cd "$copy/$1" || exit
  if [[ $2 != go.mod ]]; then
    mv "$2" go.mod
    mv "${2%.mod}.sum" go.sum
  fi
  "${@:3}"
)

# pinned prints the modules that are required directly, each with its version.
pinned() {
  go list -m -f '{{if not (or .Main .Indirect)}}{{with .Replace}}{{.Path}} {{.Version}}{{else}}{{.Path}} {{.Version}}{{end}}{{end}}' all
}

modules=(". go.mod" ". go-0.37.mod")
for modfile in $(kube_modfiles); do
  modules+=("cmd $modfile")
done

for module in "${modules[@]}"; do
  read -r dir modfile <<<"$module"
  tags=
  [[ $dir != cmd ]] || tags=$(build_tag "$modfile")
  if out=$(in_copy "$dir" "$modfile" go tool -modfile="$tools" govulncheck -db="$database" -tags="$tags" ./... 2>&1); then
    continue
  fi
  if [[ $out != *"fetching vulnerabilities"* ]]; then
    printf '%s/%s: %s\n' "$dir" "$modfile" "$out" >&2
    exit 1
  fi
  echo "NOT CHECKED: the vulnerability database can't be reached. Pinned are $(go env GOVERSION) and"
  for other in "${modules[@]}"; do
    read -r dir modfile <<<"$other"
    in_copy "$dir" "$modfile" pinned
  done | sed -n 's/^[^. ]/  &/p' | sort -u
  exit 0
done
