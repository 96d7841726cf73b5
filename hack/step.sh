#!/usr/bin/env bash
# Runs a command under a heading and says how long it took.
#
# Usage: hack/step.sh NAME COMMAND [ARG]...
#
# With STEP_LOG set, the line that tells the result is added to that file too.
set -u

name=$1
shift
start=$SECONDS
printf '== %s\n' "$name"
"$@"
status=$?
result=ok
[[ $status == 0 ]] || result="FAILED ($status)"
printf '== %s: %s, %ds\n' "$name" "$result" $((SECONDS - start)) | tee -a "${STEP_LOG:-/dev/null}"
exit "$status"
