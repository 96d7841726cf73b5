# Shared by the scripts of hack/. Source it; it changes to the repository's root.
# shellcheck shell=bash
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The scripts mean the same when they are run without make. See the Makefile.
export GOFLAGS=-buildvcs=false GOWORK=off

die() {
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit 1
}

# kube_modfiles prints the names of the cmd module's modfiles, one for each Kubernetes minor.
kube_modfiles() {
  (cd cmd && ls go.mod go-*.mod)
}

# required_version MODFILE MODULE prints the version of a direct requirement.
required_version() {
  awk -v module="$2" '$1 == "require" { sub(/require /, "") } $1 == module && !/\/\/ indirect/ { print $2; exit }' "$1"
}

# build_tag MODFILE prints the build tag of the minor that the modfile in cmd/
# requires, for source that must differ between minors: kubernetes_1_36.
build_tag() {
  local version
  version=$(required_version "cmd/$1" k8s.io/kubernetes)
  version=${version%.*}
  version=${version#v}
  echo "kubernetes_${version/./_}"
}

# modfile_for MINOR prints the name of the modfile in cmd/ that requires that minor of Kubernetes.
modfile_for() {
  local file
  for file in $(kube_modfiles); do
    case $(required_version "cmd/$file" k8s.io/kubernetes) in
      "v$1".*) echo "$file" && return ;;
    esac
  done
  die "no modfile in cmd/ requires k8s.io/kubernetes v$1"
}
