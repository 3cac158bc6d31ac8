#!/bin/sh
# The install steps of the Dockerfile, for the Python that is first on the PATH.
#   install.sh torch CONSTRAINTS [INDEX]     torch, also looked for in this index if one is named
#   install.sh package CONSTRAINTS EXTRAS    this package, from the present folder, with extras
set -eu

step=$1
constraints=$2
case "$step" in
    torch)
        requirement=$(grep '^torch==' "$constraints")
        index=${3:-}
        # Of one version pip takes the build with a local tag such as +cu126 over the one without.
        python -m pip install --constraint "$constraints" ${index:+--extra-index-url "$index"} \
            "$requirement"
        ;;
    package)
        python -m pip install --constraint "$constraints" ".[$3]"
        ;;
    *)
        echo "install.sh: error: step $step is neither torch nor package" >&2
        exit 2
        ;;
esac
