#!/bin/bash
# Runs a test program with its ranks on several hosts, which a wire joins: on_hosts.sh HOSTS PROGRAM [ARGUMENT]...
# With a word `groups` after the number, as in 5,groups, the hosts exchange large tensors in groups.
set -eu
export TF_SMDDP_TEST_HOSTS=${1%,*}
case $1 in *,groups) export TF_SMDDP_TEST_GROUPS=1 ;; esac
shift
exec "$@"
