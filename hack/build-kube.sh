#!/usr/bin/env bash
# Builds one program of the cmd module, or of k8s.io/kubernetes, against one Kubernetes minor.
#
# Usage: hack/build-kube.sh MINOR PACKAGE OUTPUT
# For example: hack/build-kube.sh 1.36 ./kube-apiserver bin/kube-apiserver-v1.36
source "$(dirname "$0")/lib.sh"

[[ $# == 3 ]] || die "usage: hack/build-kube.sh MINOR PACKAGE OUTPUT"
minor=$1 package=$2 output=$3

modfile=$(modfile_for "$minor")
version=$(go list -C cmd -modfile="$modfile" -m -f '{{.Version}}' k8s.io/kubernetes)

# Without these a server calls itself v0.0.0-master.
ldflags="-s -w"
ldflags+=" -X k8s.io/component-base/version.gitVersion=$version"
ldflags+=" -X k8s.io/component-base/version.gitMajor=${minor%%.*}"
ldflags+=" -X k8s.io/component-base/version.gitMinor=${minor#*.}"
ldflags+=" -X k8s.io/client-go/pkg/version.gitVersion=$version"

# progress turns the names of compiled packages into a line now and then, and
# passes on everything else.
progress() {
  local line compiled=0
  while IFS= read -r line; do
    case $line in
      "go: downloading"*) ;;
      *[\ :#]*) printf '%s\n' "$line" ;;
      *)
        compiled=$((compiled + 1))
        ((compiled % 100)) || printf '  %d packages compiled, %ds\n' "$compiled" "$SECONDS"
        ;;
    esac
  done
}

if [[ ! -e $output ]]; then
  # How long the other programs take depends on what was built before.
  long=
  [[ $package != *kube-apiserver ]] || long=" (2100 packages, about 5 minutes on two cores, if Go's build cache is empty)"
  echo "building $output, Kubernetes $version$long"
fi
mkdir -p "$(dirname "$output")"
go build -C cmd -modfile="$modfile" -tags="$(build_tag "$modfile")" -ldflags="$ldflags" -v \
  -o "../$output" "$package" 2>&1 | progress >&2
echo "$output: Kubernetes $version, ${SECONDS}s"
