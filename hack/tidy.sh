#!/usr/bin/env bash
# Tidies every module with each of its modfiles. go-0.37.mod is go.mod with the
# k8s.io libraries at the version that belongs to cmd/go.mod's Kubernetes.
#
# Usage: hack/tidy.sh [--check]
# With --check nothing is changed, and a difference is an error.
source "$(dirname "$0")/lib.sh"

check=
case ${1-} in
  "") ;;
  --check) check=yes ;;
  *) die "usage: hack/tidy.sh [--check]" ;;
esac

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=

# tidy DIR MODFILE tidies one modfile of the module in DIR, or checks it.
tidy() {
  if [[ -z $check ]]; then
    go mod tidy -C "$1" -modfile="$2"
  elif ! go mod tidy -C "$1" -modfile="$2" -diff; then
    echo "$1/$2 is not tidy" >&2
    failed=yes
  fi
}

# derive_newest writes go-0.37.mod and its sum file into $scratch. The
# libraries that Kubernetes publishes from its own tree share one version,
# v0.X.Y for Kubernetes v1.X.Y; the rest follows from what they require.
derive_newest() {
  local oldest newest
  oldest=$(required_version go.mod k8s.io/apiserver)
  newest=v0.${kubernetes#v1.}
  awk -v oldest="$oldest" -v newest="$newest" \
    '$1 ~ /^k8s\.io\// && $2 == oldest { sub(oldest, newest) } { print }' go.mod >"$scratch/go-0.37.mod"
  cp go.sum "$scratch/go-0.37.sum"
  go mod tidy -modfile="$scratch/go-0.37.mod"
}

kubernetes=$(required_version cmd/go.mod k8s.io/kubernetes)

tidy . go.mod
for modfile in $(kube_modfiles); do
  tidy cmd "$modfile"
done
tidy hack/tools go.mod

derive_newest
for file in go-0.37.mod go-0.37.sum; do
  if [[ -z $check ]]; then
    cp "$scratch/$file" "$file"
  elif ! diff -u "$file" "$scratch/$file"; then
    echo "$file is not what go.mod makes of it" >&2
    failed=yes
  fi
done

[[ -z $failed ]] || exit 1
