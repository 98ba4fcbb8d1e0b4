#!/bin/bash
# Runs a test program with its ranks on several hosts, which a wire joins: on_hosts.sh HOSTS PROGRAM [ARGUMENT]...
set -eu
export TF_SMDDP_TEST_HOSTS=$1
shift
exec "$@"
