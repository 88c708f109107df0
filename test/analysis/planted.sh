#!/usr/bin/env bash
# planted.sh: a fault for shellcheck to find, SC2086; see planted.c.
rm -f $1
