#!/usr/bin/env bash
# Moves the programs to another release of Kubernetes.
#
# Usage: hack/update-kubernetes.sh MINOR VERSION
# For example: hack/update-kubernetes.sh 1.37 v1.37.3
#
# MINOR names the modfile to change: the one in cmd/ that requires this minor
# now. VERSION may be of another minor.
#
# k8s.io/kubernetes requires the modules of its own tree at v0.0.0, which only
# its own replacements resolve. So each of them gets a replacement here, by the
# version that was published with VERSION; every requirement that was derived
# from the old release goes, and `go mod tidy` derives the new ones.
source "$(dirname "$0")/lib.sh"

[[ $# == 2 && $2 == v1.*.* ]] || die "usage: hack/update-kubernetes.sh MINOR VERSION"
modfile=$(modfile_for "$1")
version=$2
staging=v0.${version#v1.}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Outside of any module, so that the download is not bound by what cmd/ requires.
upstream=$(cd "$scratch" && go mod download -json "k8s.io/kubernetes@$version" | awk -F '"' '$2 == "GoMod" { print $4 }') ||
  die "cannot download k8s.io/kubernetes $version"

# staged_modules prints the modules that Kubernetes keeps in its own tree.
staged_modules() { awk '/^\tk8s\.io\// && $2 == "v0.0.0" { print $1 }' "$upstream"; }

edits=(-require="k8s.io/kubernetes@$version")
# What was derived before.
for module in $(awk '/^\t.* \/\/ indirect(;|$)/ { print $1 }' "cmd/$modfile"); do
  edits+=(-droprequire="$module")
done
for module in $(awk '/^\tk8s\.io\/.* => k8s\.io\// { print $1 }' "cmd/$modfile"); do
  edits+=(-dropreplace="$module")
done
for module in $(staged_modules); do
  edits+=(-replace="$module=$module@$staging")
  # What the programs import themselves moves along.
  [[ -z $(required_version "cmd/$modfile" "$module") ]] || edits+=(-require="$module@$staging")
done

(cd cmd && go mod edit "${edits[@]}" "$modfile" && go mod tidy -modfile="$modfile")
echo "cmd/$modfile: Kubernetes $version. Now run make tidy, and make verify test."
