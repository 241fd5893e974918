#!/bin/sh
# test_packages.sh - the ways to take the library in: what `make install` writes is all there, finds itself, and goes again; a
# program is built and run for each way (consumers/); the shared library shows what it did; man pages and Debian packages
# are without errors.  A way whose tools are not here is left out, and says so.
#   CC: the compiler.  cmake, ninja, meson, pkg-config, mandoc, debhelper, lintian, abigail-tools: deps installs them
cd "$(dirname "$0")/../.." || exit 1
top=$(pwd)
: "${CC:=cc}"
if [ "$CC" = cc ] && command -v clang > /dev/null; then CC=clang; fi         # without an optimizer it takes half the time
export CC
. tests/support/checks.sh
there() { # text for a skipped part, commands: are all of them installed?
    left=$1; shift
    for command in "$@"; do
        PATH=$PATH:/usr/sbin command -v "$command" > /dev/null 2>&1 || { echo "left out: $left: no $command"; return 1; }
    done
}
number() { sed -n "s/^#define COLL_VERSION_$1 //p" coll.h; }
series=$(number MAJOR).$(number MINOR)
version=$series.$(number PATCH)
taken() { "$@" | grep -qx "taken in: $version"; }          # a consumer, run
prefix=$dir/prefix
made="make --no-print-directory config=plain BUILD=$dir/build PREFIX=$prefix"
consumers=$top/tests/build/consumers
library_path() { LD_LIBRARY_PATH=$1; export LD_LIBRARY_PATH; shift; "$@"; at=$?; unset LD_LIBRARY_PATH; return $at; }

# ---- one version everywhere
grep_one() { grep -qF "$1" "$2" || { echo "$2: no $1"; return 1; }; }
check "one version: libcoll.map" grep_one "COLL_$series {" packages/libcoll.map
check "one version: meson.build" grep_one "version: '$version'" meson.build
check "one version: debian/changelog" sh -c "head -n 1 debian/changelog | grep -F '($version)'"
check "one version: debian/control" grep_one "Package: libcoll$series" debian/control
check "one version: docs/versions.md" grep_one "libcoll.so.$series" docs/versions.md

# ---- installed from make
files() { (cd "$1" && find . ! -type d | sort); }
# shellcheck disable=SC2086
check "make install" $made install
files "$prefix" > "$dir/all"
grep '/man3/coll_' "$dir/all" | sed 's|.*/||; s|\.3$||' > "$dir/pages"
grep -v '/man3/coll_' "$dir/all" > "$dir/installed"
sed "s/SERIES/$series/" > "$dir/expected" << 'LIST'
./bin/coll-check
./bin/coll-run
./bin/coll_perf
./include/coll.h
./include/coll.hpp
./lib/cmake/coll/coll-config-version.cmake
./lib/cmake/coll/coll-config.cmake
./lib/libcoll.a
./lib/libcoll.so
./lib/libcoll.so.SERIES
./lib/pkgconfig/coll-header.pc
./lib/pkgconfig/coll.pc
./share/man/man1/coll-check.1
./share/man/man1/coll-run.1
./share/man/man1/coll_perf.1
./share/man/man3/coll.3
LIST
check "make install: all of it, and nothing else" diff "$dir/expected" "$dir/installed"
public() { nm -D --defined-only "$prefix/lib/libcoll.so" | awk '$2 == "T" { sub(/@.*/, "", $3); print $3 }' | sort; }
each_has_page() { public > "$dir/public" && test -s "$dir/public" && ! sort "$dir/pages" | comm -13 - "$dir/public" | grep .; }
check "make install: a man page for each public function" each_has_page
check "make install: what is installed is the single file" cmp single/coll.h "$prefix/include/coll.h"
check "the launcher that is installed, and the other tool" \
    sh -c "'$prefix/bin/coll-run' -n 2 '$prefix/bin/coll-check' && '$prefix/bin/coll-run' --version | grep -F '$version'"
# shellcheck disable=SC2086
check "make install with DESTDIR and LIBDIR" $made install DESTDIR="$dir/staged" LIBDIR="$prefix/lib/multi" BINDIR=/opt/bin
check "DESTDIR: coll.pc does not know of it" \
    grep -x "libdir=$prefix/lib/multi" "$dir/staged$prefix/lib/multi/pkgconfig/coll.pc"
# shellcheck disable=SC2086
check "make uninstall with DESTDIR and LIBDIR" \
    $made uninstall DESTDIR="$dir/staged" LIBDIR="$prefix/lib/multi" BINDIR=/opt/bin
check "make uninstall leaves nothing" sh -c "! find '$dir/staged' ! -type d | grep ."

# ---- the shared library
soname() { readelf -d "$1" | grep -F "soname: [libcoll.so.$series]"; }
stray() { ! nm -D --defined-only "$1" | awk '$2 != "A" { print $3 }' | grep -v '^coll_[a-z]'; }
check "libcoll.so: soname" soname "$prefix/lib/libcoll.so"
check "libcoll.so: nothing but coll_" stray "$prefix/lib/libcoll.so"
check "libcoll.so: liburing is not needed" sh -c "! readelf -d '$prefix/lib/libcoll.so' | grep NEEDED | grep uring"
check "libcoll.so: symbols and layout are what they were" sh packages/abi.sh check
small() { # what is left out keeps its symbol
    $CC -std=c11 -O0 -DCOLL_SMALL -c coll.c -o "$dir/small.o" \
        && nm -g --defined-only "$dir/small.o" | cut -d ' ' -f 3 | sort > "$dir/a" \
        && sed -n 's/^ \(coll_[^@]*\)@.*/\1/p' "debian/libcoll$series.symbols" | sort | diff - "$dir/a"
}
check "COLL_SMALL has all symbols" small
sed 's/coll_barrier@/coll_barrier_of_yore@/' "debian/libcoll$series.symbols" > "$dir/symbols"
lost() { # a missing symbol is found
    mkdir -p "$dir/lost/debian" && cp -r coll.h coll.c coll_impl.h core transports carriers packages "$dir/lost" \
        && cp "$dir/symbols" "$dir/lost/debian/libcoll$series.symbols" && cd "$dir/lost" && ! sh packages/abi.sh check > said \
        && grep -q '< coll_barrier_of_yore' said
}
check "a missing symbol is reported" lost
grown() { # HEADER STRUCTURE: a member after all others, so that the library compiles
    cp "$top/debian/libcoll$series.symbols" debian/ \
        && sed "s/^} $2;/    long long grown;\n&/" "$top/$1" > "$1" && ! cmp -s "$top/$1" "$1" \
        && ! sh packages/abi.sh check > said && grep -q "'long long int grown', at offset [1-9]" said
    set -- "$1" $?
    cp "$top/$1" "$1" && return "$2"
}
cd "$dir/lost" || exit 1
if [ "$(uname -m)" = x86_64 ] && there "layout" abidw abidiff; then
    check "a structure that has grown is reported" grown coll.h coll_call
    check "one of coll_config.h is reported" grown core/contract/coll_config.h coll_sim
    check "one of coll_memory.h is reported" grown core/contract/coll_memory.h coll_allocator
    check "one of coll_transport.h is reported" grown core/contract/coll_transport.h coll_transport
fi
cd "$top" || exit 1

# ---- by hand: the single file, two units, C++
plain() { $CC -std=gnu11 -O0 -DCOLL__ONE_TIER "$@"; }
check "single file: one unit" sh -c "cat '$consumers/library.c' '$consumers/train.c' > '$dir/one.c' \
    && $CC -std=gnu11 -O0 -DCOLL__ONE_TIER -I single '$dir/one.c' -o '$dir/one' -pthread"
check "single file: one unit runs" taken "$dir/one"
check "two units" plain -I single "$consumers/library.c" "$consumers/train.c" -o "$dir/two" -pthread
check "two units run" taken "$dir/two"
if there "C++" g++; then
    beside() {
        plain -I single -c "$consumers/library.c" -o "$dir/library.o" && g++ -std=c++11 -Wall -Wextra -Werror -I single \
            "$consumers/train.cc" "$dir/library.o" -o "$dir/plus" -pthread
    }
    check "C++ beside a C file" beside
    check "C++ beside a C file runs" taken "$dir/plus"
fi

# ---- pkg-config
if there "pkg-config" pkg-config; then
    PKG_CONFIG_PATH=$prefix/lib/pkgconfig
    export PKG_CONFIG_PATH
    asked() { pkg-config "$@"; }
    # shellcheck disable=SC2046
    {
    check "pkg-config: coll" $CC "$consumers/train.c" -o "$dir/pc" $(asked --cflags --libs coll)
    check "pkg-config: coll runs" library_path "$prefix/lib" taken "$dir/pc"
    check "pkg-config: the shared library is what it takes" sh -c "readelf -d '$dir/pc' | grep -F 'libcoll.so.$series'"
    check "pkg-config: coll --static" $CC -static "$consumers/train.c" -o "$dir/pcs" $(asked --static --cflags --libs coll)
    check "pkg-config: coll --static runs" taken "$dir/pcs"
    check "pkg-config: coll-header" $CC -O0 -DCOLL__ONE_TIER "$consumers/train.c" "$consumers/library.c" -o "$dir/pch" \
        $(asked --cflags --libs coll-header)
    check "pkg-config: coll-header runs" taken "$dir/pch"
    check "pkg-config: the version" test "$(asked --modversion coll)" = "$version"
    }
fi

# ---- CMake
built() { # folder, flags...: into $dir/NAME
    folder=$1; shift
    cmake -S "$consumers/$folder" -B "$dir/$folder" -DCMAKE_C_FLAGS="-O0 -DCOLL__ONE_TIER" "$@" \
        && cmake --build "$dir/$folder" -j 2
}
if there "CMake" cmake g++; then
    for way in "cmake-installed -DCMAKE_PREFIX_PATH=$prefix" "cmake-added -DCHECKOUT=$top" \
        "cmake-fetched -DCHECKOUT=$top -DBUILD_SHARED_LIBS=ON"; do
        folder=${way%% *}
        # shellcheck disable=SC2086
        check "$folder" built $way
        for program in header library plusplus layer static; do
            [ $program != static ] || [ $folder = cmake-installed ] || continue
            check "$folder: $program runs" taken "$dir/$folder/$program"
        done
    done
    own() { # what CMake installs is what make installs, but for man pages; and is found
        cmake -S . -B "$dir/own" -DCMAKE_INSTALL_PREFIX="$dir/cmade" -DCMAKE_INSTALL_LIBDIR=lib -DBUILD_SHARED_LIBS=ON \
            -DCMAKE_C_FLAGS="-O0 -DCOLL__ONE_TIER" && cmake --build "$dir/own" -j 2 && cmake --install "$dir/own" \
            && files "$dir/cmade" > "$dir/theirs" && grep -v -e /man/ -e 'libcoll\.a' "$dir/expected" | diff - "$dir/theirs"
    }
    check "cmake --install writes what make does" own
    check "cmake --install: the shared library shows coll_ alone" stray "$dir/cmade/lib/libcoll.so"
    shown() { nm -D --defined-only "$1" | cut -c 18- | sort; }
    same() { shown "$1" > "$dir/a" && shown "$2" | diff "$dir/a" -; }
    check "cmake --install: the symbols are those of make's" same "$dir/cmade/lib/libcoll.so" "$prefix/lib/libcoll.so"
fi

# ---- Meson
if there "Meson" meson ninja g++ pkg-config; then
    meson_built() { # folder, flags...
        folder=$1; shift
        meson setup "$dir/$folder.build" "$dir/$folder" --buildtype=plain -Dc_args="-O0 -DCOLL__ONE_TIER" "$@" \
            && ninja -j 2 -C "$dir/$folder.build"
    }
    for folder in meson-dependency meson-subproject; do
        mkdir -p "$dir/$folder/subprojects"
        cp "$consumers"/meson/meson.build "$consumers"/train.c* "$consumers"/layer.cpp "$consumers"/library.c "$dir/$folder/"
    done
    mkdir "$dir/meson-subproject/subprojects/coll"
    cp -r meson.build meson_options.txt coll.h coll.hpp coll.c coll_impl.h core transports carriers packages single \
        "$dir/meson-subproject/subprojects/coll/"
    check "Meson: a dependency that pkg-config finds" meson_built meson-dependency --wrap-mode=nofallback
    check "Meson: a subproject" env PKG_CONFIG_PATH= PKG_CONFIG_LIBDIR=/nowhere sh -c "
        meson setup '$dir/meson-subproject.build' '$dir/meson-subproject' --buildtype=plain -Dc_args='-O0 -DCOLL__ONE_TIER' \
            --wrap-mode=forcefallback && ninja -j 2 -C '$dir/meson-subproject.build'"
    for folder in meson-dependency meson-subproject; do
        for program in header library plusplus layer; do
            check "$folder: $program runs" library_path "$prefix/lib" taken "$dir/$folder.build/$program"
        done
    done
fi

# ---- man pages
if there "man pages" mandoc; then
    for page in man3/coll.3 man1/coll-run.1 man1/coll-check.1 man1/coll_perf.1; do
        check "$page: mandoc has nothing to say" mandoc -Tlint -W warning "$prefix/share/man/$page"
    done
    linted() { # each page of a function, but those that refer to another one, which is there
        for page in "$prefix"/share/man/man3/coll_*.3; do
            other=$(sed -n 's|^\.so ||p' "$page")
            if [ -n "$other" ]; then test -s "$prefix/share/man/$other" || return 1
            else mandoc -Tlint -W warning "$page" || return 1; fi
        done
    }
    check "man pages of functions: mandoc has nothing to say" linted
    shown() { # page text...: what a reader sees
        page=$prefix/share/man/man3/$1.3; shift
        mandoc -Tascii "$page" | col -b > "$dir/shown" && for text; do grep -qF "$text" "$dir/shown" || return 1; done
    }
    check "man coll_allreduce: prototype, parameters, what is returned" shown coll_allreduce "coll_comm *comm, const void *send" \
        "coll_iallreduce(" "SYNOPSIS" "The parameters are:" "RETURN VALUES" "COLL_ERR_ARGUMENT"
    check "man coll_gatherv refers to coll_gather" grep -qx ".so man3/coll_gather.3" "$prefix/share/man/man3/coll_gatherv.3"
    check "coll.3 has all sections of the manual" sh -c "grep -c '^ \* [A-Z][A-Z ]*\$' coll.h > '$dir/a'
        grep -c '^.Sh' '$prefix/share/man/man3/coll.3' > '$dir/b'; test \$((\$(cat '$dir/a') + 4)) -eq \$(cat '$dir/b')"
fi

# ---- Debian: packages of what git has, unpacked into a root of their own
if there "Debian" dpkg-buildpackage dh dh_python3 lintian fakeroot git; then
    mkdir -p "$dir/debian/coll" "$dir/root"
    git ls-files | while read -r file; do [ ! -f "$file" ] || echo "$file"; done | tar cf - -T - | tar xf - -C "$dir/debian/coll"
    debian() { (unset CC; cd "$dir/debian/coll" && DEB_BUILD_OPTIONS="parallel=2 noddebs noopt" dpkg-buildpackage -b -us -uc); }
    check "Debian: dpkg-buildpackage" debian
    check "Debian: lintian" sh -c "lintian --no-cfg --allow-root --fail-on error '$dir'/debian/*.changes"
    check "Debian: unpacked" sh -c "for f in '$dir'/debian/*.deb; do dpkg -x \"\$f\" '$dir/root' || exit 1; done"
    multi=$(dpkg-architecture -qDEB_HOST_MULTIARCH)
    PKG_CONFIG_PATH=$dir/root/usr/lib/$multi/pkgconfig
    libraries=$dir/root/usr/lib/$multi
    check "Debian: a program" env PKG_CONFIG_SYSROOT_DIR="$dir/root" \
        PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1 PKG_CONFIG_ALLOW_SYSTEM_LIBS=1 \
        sh -c "$CC '$consumers/train.c' -o '$dir/deb' \$(pkg-config --cflags --libs coll) -Wl,-rpath-link,'$libraries'"
    check "Debian: the program runs" library_path "$libraries" taken "$dir/deb"
    check "Debian: the Python package runs" env PYTHONPATH="$dir/root/usr/lib/python3/dist-packages" \
        COLL_LIBRARY="$libraries/libcoll.so.$series" "$dir/root/usr/bin/coll-run" -n 2 python3 -c '
import array, coll
with coll.init() as comm:
    x = array.array("f", [comm.rank + 1])
    comm.allreduce_(x)
    assert x[0] == 3, x'
    check "Debian: the launcher runs" sh -c "'$dir/root/usr/bin/coll-run' -n 2 '$dir/root/usr/bin/coll-check'"
    check "Debian: the library has TLS" sh -c "readelf -d '$libraries/libcoll.so.$series' | grep NEEDED | grep libssl"
fi

# shellcheck disable=SC2086
check "make uninstall" $made uninstall
check "make uninstall leaves nothing of all that" sh -c "! find '$prefix' ! -type d | grep ."
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
