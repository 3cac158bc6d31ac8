#!/bin/sh
# The install steps of the Dockerfile, for the Python that is first on the PATH.
#   install.sh torch CONSTRAINTS [INDEX]     torch, from this index if one is named
#   install.sh package CONSTRAINTS EXTRAS    this package, from the present folder, with extras
set -eu

step=$1
constraints=$2
case "$step" in
    torch)
        requirement=$(grep '^torch==' "$constraints")
        index=${3:-}
        python -m pip install --constraint "$constraints" ${index:+--index-url "$index"} \
            ${index:+--extra-index-url https://pypi.org/simple} "$requirement"
        ;;
    package)
        python -m pip install --constraint "$constraints" ".[$3]"
        ;;
    *)
        echo "install.sh: error: step $step is neither torch nor package" >&2
        exit 2
        ;;
esac
