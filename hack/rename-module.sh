#!/usr/bin/env bash
# Gives the library another module path, as a fork needs.
#
# Usage: hack/rename-module.sh NEW
# For example: hack/rename-module.sh github.com/example/peerproxy
#
# It renames the module and those nested in it, their requirements of each
# other, every import, and the places where documents and settings name a
# package. What goes over the wire or onto a disk keeps its name.
source "$(dirname "$0")/lib.sh"

new=${1-}
[[ $# == 1 && $new =~ ^[A-Za-z0-9._~/-]+$ ]] || die "usage: hack/rename-module.sh NEW"
old=$(awk '$1 == "module" { print $2; exit }' go.mod)
[[ $new != "$old" ]] || die "the module is $old already"

# A path is the module's where it ends, or goes on with one of its directories.
export old new
grep -rlIF "$old" . --exclude-dir=.git --exclude-dir=bin --exclude-dir=.cache |
  xargs -d '\n' perl -pi -e \
    's{(?<![\w./-])\Q$ENV{old}\E(?=/(?:cmd|hack|pkg|test)\b|\.?(?![\w./-]))}{$ENV{new}}g'

# The new path may sort elsewhere among the imports.
gofmt -w cmd pkg test

# So may its line among the requirements. This also proves that every import resolves.
hack/tidy.sh
echo "$old is now $new"
