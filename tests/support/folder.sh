# folder.sh - where `make config=...` builds, for scripts that read this file: switches in CPPFLAGS are in the folder's name
# (Makefile).

folder() { # config
    printf 'build/%s' "$1"
    for flag in $CPPFLAGS; do
        case $flag in -DCOLL_*) printf .%s "${flag#-D}" | tr = - ;; esac
    done
    echo
}
