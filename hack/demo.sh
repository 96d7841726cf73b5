#!/usr/bin/env bash
# Shows what the mixed version proxy does, on a real cluster of three servers.
#
#   hack/demo.sh          leaves the cluster up until Ctrl-C
#   hack/demo.sh --exit   stops it after the last answer
#
# Ends with a status other than 0 if an answer is not what it should be.
set -euo pipefail

stay=yes
case "${1-}" in
  "") ;;
  --exit) stay=no ;;
  *) echo "usage: hack/demo.sh [--exit]" >&2; exit 2 ;;
esac

root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/peerproxy-demo-XXXXXX")
cluster_pid='' watch_pid=''
export KUBECACHEDIR=$work/kubectl-cache

cleanup() {
  local status=$?
  trap - EXIT INT TERM HUP
  for pid in "$watch_pid" "$cluster_pid"; do
    [[ -z $pid ]] || kill "$pid" 2>/dev/null || true
  done
  # The cluster ends its servers and removes its files; wait for that.
  while [[ -n $cluster_pid ]] && kill -0 "$cluster_pid" 2>/dev/null; do sleep 0.1; done
  rm -rf "$work"
  exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

bold='' plain=''
if [[ -t 1 ]]; then bold=$'\e[1m' plain=$'\e[0m'; fi
title() { printf '\n%s%s%s\n\n' "$bold" "$1" "$plain"; }
say() { printf '%s\n' "$@"; }
fail() { printf '\nThe demo failed: %s\n' "$1" >&2; exit 1; }

# start runs the cluster and shows its progress until it is up.
start() {
  local line
  exec 3< <(TMPDIR=$work exec bin/mixed-cluster \
    --server new=v1.37,audit=on \
    --server old=v1.37,emulated=1.36,audit=on \
    --server alone=v1.37,emulated=1.36,peers=off 2>&1)
  cluster_pid=$!
  while true; do
    IFS= read -r line <&3 || fail "the cluster did not start."
    [[ $line != "The cluster is up." ]] || break
    [[ -z $line ]] || say "  $line"
  done
  cd "$work"/mixed-cluster-*
}

# expect shows a command and its output, which must match. The servers need a
# moment to hear of each other, so it tries for 10 s, and shows the last try.
expect() {
  local want=$1 command=$2 output end=$((SECONDS + 10))
  printf '  $ %s\n' "$command"
  until output=$(eval "$command" 2>&1) || true; grep -qE -- "$want" <<<"$output"; do
    if ((SECONDS >= end)); then
      say "$output"
      fail "the answer should match: $want"
    fi
    sleep 0.2
  done
  sed 's/^/  /' <<<"$output"
}

# url is where a server serves.
url() { grep -o 'https://.*' "$1.kubeconfig"; }

# bundle writes the manifest of a resource that only 1.37 has.
bundle() {
  cat <<YAML
apiVersion: certificates.k8s.io/v1
kind: ClusterTrustBundle
metadata:
  name: $1
spec:
  trustBundle: |
$(sed 's/^/    /' pki/ca.crt)
YAML
}

kubectl() { "$root/bin/kubectl" "$@"; }
get() { curl -sS --cacert pki/ca.crt --cert pki/admin.crt --key pki/admin.key "$@"; }

command -v curl >/dev/null || fail "it needs curl."
cd "$root"
title "Building what is missing"
if [[ ! -x bin/kube-apiserver-v1.37 ]]; then
  say "The first build compiles a whole kube-apiserver: about 5 minutes on two cores." ""
fi
make bin/kube-apiserver-v1.37 bin/mixed-cluster bin/kubectl || fail "make could not build the binaries."

title "Starting three servers on one etcd"
say "  new    1.37" \
  "  old    the same binary, which emulates 1.36: it serves what a 1.36 server has" \
  "  alone  as old, but without --peer-ca-file: the peer proxy is off" ""
start

title "1. A resource that the old server lacks, used through the old server"
say "  certificates.k8s.io/v1 clustertrustbundles is new in 1.37." ""
bundle first >first.yaml
bundle second >second.yaml
expect 'first created' 'kubectl --kubeconfig=old.kubeconfig create -f first.yaml'
expect '^first ' 'kubectl --kubeconfig=old.kubeconfig get clustertrustbundles'
expect '"name":"first"' 'kubectl --kubeconfig=old.kubeconfig get --raw /apis/certificates.k8s.io/v1/clustertrustbundles/first | cut -c 1-120'

say "" "  And watched, while another one comes and goes:" ""
say '  $ kubectl --kubeconfig=old.kubeconfig get clustertrustbundles --watch --output-watch-events >watch.txt &'
"$root/bin/kubectl" --kubeconfig=old.kubeconfig get clustertrustbundles --watch --output-watch-events >watch.txt 2>&1 3<&- &
watch_pid=$!
for _ in {1..100}; do
  grep -q first watch.txt && break
  sleep 0.1
done
expect 'second created' 'kubectl --kubeconfig=old.kubeconfig create -f second.yaml'
expect 'second" deleted' 'kubectl --kubeconfig=old.kubeconfig delete -f second.yaml'
expect 'DELETED +second' 'cat watch.txt'
kill "$watch_pid"
wait "$watch_pid" 2>/dev/null || true
watch_pid=''

title "2. The same request at the server without the peer proxy"
expect 'NotFound' 'kubectl --kubeconfig=alone.kubeconfig get --raw /apis/certificates.k8s.io/v1/clustertrustbundles'

title "3. Discovery: what the cluster serves, and what one server alone serves"
new=$(url new) old=$(url old) alone=$(url alone)
accept='Accept: application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList'
say "  new=$new old=$old alone=$alone" \
  "  accept='$accept'" \
  "  alias get='curl -sS --cacert pki/ca.crt --cert pki/admin.crt --key pki/admin.key'" ""
say "  Merged, as clients get it: old lists what new serves." ""
expect '^1$' 'get -H "$accept" $old/apis | grep -c clustertrustbundles'
say "" "  With profile=nopeer it lists its own, and alone knows nothing else." ""
expect '^0$' 'get -H "$accept;profile=nopeer" $old/apis | grep -c clustertrustbundles'
expect '^0$' 'get -H "$accept" $alone/apis | grep -c clustertrustbundles'
say "" "  The merged document is the same on both servers, byte for byte:" ""
expect '^same$' 'cmp <(get -H "$accept" $old/apis) <(get -H "$accept" $new/apis) && echo same'

title "4. Which peer answered"
say "  A request under an audit ID of its own, sent to old:" ""
expect '^200$' "get -H 'Audit-ID: which-peer' -o list.json -w '%{http_code}\\n' \$old/apis/certificates.k8s.io/v1/clustertrustbundles"
say "" "  old's audit log names the peer, and new's has the request under the user's name:" ""
expect '"apiserver-new"$' "grep which-peer old.audit.log | grep -o '\"[^\"]*/peer\":\"[^\"]*\"'"
expect '"admin"$' "grep which-peer new.audit.log | grep -o '\"requestURI.*\"username\":\"[^\"]*\"'"
say "" "  And old counts what it forwarded:" ""
expect '^apiserver_rerouted_request_total.* [1-9]' \
  'kubectl --kubeconfig=old.kubeconfig get --raw /metrics | grep ^apiserver_rerouted_request_total'

title "Every answer was as it should be."
[[ $stay == yes ]] || exit 0
say "The cluster stays up."
# What it has to say is shown to the end, which a signal brings about.
(trap '' INT; exec cat) <&3 &
trap 'kill "$cluster_pid" 2>/dev/null || true' INT TERM HUP
until wait $!; do :; done
