#!/usr/bin/env bash
# Does what README.md says of linking the proxy into a kube-apiserver in a module
# of one's own: makes such a module of the go.mod there, with the main of
# cmd/kube-apiserver, and runs each block of commands of that section in a fresh
# copy. With a warm build cache it takes one to two minutes.
source "$(dirname "$0")/lib.sh"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
ln -s "$PWD" "$scratch/peerproxy"

# blocks LANGUAGE prints the fenced blocks of that language in the section, one
# file each in $scratch/LANGUAGE.
blocks() {
  awk -v language="$1" -v dir="$scratch" '
    /^#+ / { inside = $0 == "### In a module of your own"; next }
    !inside { next }
    /^```/ {
      if (open) { open = 0; if (file != "") close(file); file = ""; next }
      open = 1
      if (substr($0, 4) == language) file = dir "/block" ++n "." (language == "" ? "mod" : language)
      next
    }
    file != "" { print > file }
  ' README.md
}
blocks ""
blocks sh

shopt -s nullglob
mods=("$scratch"/*.mod) scripts=("$scratch"/*.sh)
[[ ${#mods[@]} == 1 && ${#scripts[@]} == 3 ]] || die "README.md has ${#mods[@]} go.mod and ${#scripts[@]} blocks of commands, not 1 and 3"

for script in "${scripts[@]}"; do
  sed 's/^/$ /' "$script"
  module=$scratch/apiserver
  rm -rf "$module"
  mkdir "$module"
  cp "${mods[0]}" "$module/go.mod"
  cp cmd/kube-apiserver/main.go "$module"
  if grep -q 'mkdir link' "$script"; then
    sed -i 's|"peerproxy.internal/cmd/link"|"example.com/apiserver/link"|' "$module/main.go"
  fi
  (cd "$module" && bash -euo pipefail "$script") || die "failed: $(cat "$script")"
  [[ $("$module/apiserver" --help) == *--peer-server-id* ]] || die "the server has no flags of the proxy"
done
