#!/bin/bash
# Gathers the records that the general predictor learns from, on one core:
#   benches/general/gather.sh STORE INPUT...
# Each input is a model of models.py or a list of operators.py. A task gets 12 trials of the default
# search and 6 random ones: the first show what is good, the others what is not. On a machine with
# AVX-512, CC=benches/general/avx2cc makes an AVX2 machine of it.
set -u
store=$1
shift
for input in "$@"; do
  squall tune "$input" --trials-per-task 12 --store "$store" || exit 1
  squall tune "$input" --trials-per-task 6 --strategy random --no-transfer --seed 7 \
    --store "$store" || exit 1
done
