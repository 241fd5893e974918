#!/bin/sh
# Install what is used, where that needs no question: as root, or with a sudo that asks for no password.  Otherwise say the
# exact command, and go on with what is there.
#   usage: deps.sh demo|test|rest
want=${1:-demo}
cc=${CC:-cc}
packages=

has_header() { printf '#include <%s>\n' "$1" | "$cc" -E -x c - > /dev/null 2>&1; }
has_fuzzer() { # clang's own run-time libraries
    printf 'int LLVMFuzzerTestOneInput(const unsigned char *d, unsigned long n) { (void)d; (void)n; return 0; }\n' \
        | clang -fsanitize=fuzzer,address -x c - -o /dev/null 2> /dev/null
}

command -v "$cc" > /dev/null 2>&1 || packages="$packages gcc libc6-dev"
has_header liburing.h || packages="$packages liburing-dev"
if [ "$want" != demo ]; then
    command -v g++ > /dev/null 2>&1 || packages="$packages g++"
    command -v clang > /dev/null 2>&1 || packages="$packages clang"
    { command -v clang > /dev/null 2>&1 && has_fuzzer; } || packages="$packages libclang-rt-14-dev"
    has_header openssl/ssl.h || packages="$packages libssl-dev"
    command -v ctags > /dev/null 2>&1 || packages="$packages universal-ctags"
    command -v valgrind > /dev/null 2>&1 || packages="$packages valgrind"
    command -v nm > /dev/null 2>&1 || packages="$packages binutils"
    command -v aarch64-linux-gnu-gcc > /dev/null 2>&1 || packages="$packages gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
    command -v mipsel-linux-gnu-gcc > /dev/null 2>&1 || packages="$packages gcc-mipsel-linux-gnu libc6-dev-mipsel-cross"
    command -v s390x-linux-gnu-gcc > /dev/null 2>&1 || packages="$packages gcc-s390x-linux-gnu libc6-dev-s390x-cross"
    command -v i686-linux-gnu-gcc > /dev/null 2>&1 || packages="$packages gcc-i686-linux-gnu libc6-dev-i386-cross"
    command -v arm-linux-gnueabihf-gcc > /dev/null 2>&1 || packages="$packages gcc-arm-linux-gnueabihf libc6-dev-armhf-cross"
    command -v riscv64-linux-gnu-gcc > /dev/null 2>&1 || packages="$packages gcc-riscv64-linux-gnu libc6-dev-riscv64-cross"
    command -v mips64el-linux-gnuabi64-gcc > /dev/null 2>&1 \
        || packages="$packages gcc-mips64el-linux-gnuabi64 libc6-dev-mips64el-cross"
    command -v musl-gcc > /dev/null 2>&1 || packages="$packages musl-tools linux-libc-dev"
    command -v arm-none-eabi-gcc > /dev/null 2>&1 || packages="$packages gcc-arm-none-eabi"
    echo | arm-none-eabi-gcc --specs=picolibc.specs -E - > /dev/null 2>&1 || packages="$packages picolibc-arm-none-eabi"
    command -v qemu-system-arm > /dev/null 2>&1 || packages="$packages qemu-system-arm"
    command -v qemu-aarch64-static > /dev/null 2>&1 || packages="$packages qemu-user-static"
    command -v ssh > /dev/null 2>&1 || packages="$packages openssh-client"
    PATH=$PATH:/usr/sbin command -v sshd > /dev/null 2>&1 || packages="$packages openssh-server"
    PATH=$PATH:/usr/sbin command -v ip > /dev/null 2>&1 || packages="$packages iproute2"
    command -v ps > /dev/null 2>&1 || packages="$packages procps"
    command -v mpicc.openmpi > /dev/null 2>&1 || packages="$packages openmpi-bin libopenmpi-dev"
    command -v mpicc.mpich > /dev/null 2>&1 || packages="$packages mpich libmpich-dev"
    command -v python3 > /dev/null 2>&1 || packages="$packages python3"
    { command -v ip && command -v nft; } > /dev/null 2>&1 || [ -x /usr/sbin/nft ] || packages="$packages iproute2 nftables"
fi
if [ "$want" = rest ]; then                       # tests/test_packages.sh, tests of other languages
    command -v gfortran > /dev/null 2>&1 || packages="$packages gfortran"
    command -v rustc > /dev/null 2>&1 || packages="$packages rustc"
    command -v cargo > /dev/null 2>&1 || packages="$packages cargo"
    python3 -c 'import numpy' 2> /dev/null || /usr/bin/python3 -c 'import numpy' 2> /dev/null \
        || packages="$packages python3-numpy"
    command -v mypy > /dev/null 2>&1 || packages="$packages mypy"
    for pair in cmake:cmake ninja:ninja-build meson:meson pkg-config:pkg-config mandoc:mandoc dh:debhelper dh_python3:dh-python \
        dpkg-buildpackage:dpkg-dev fakeroot:fakeroot lintian:lintian abidw:abigail-tools git:git; do
        command -v "${pair%:*}" > /dev/null 2>&1 || packages="$packages ${pair#*:}"
    done
    /usr/bin/python3 -c 'import torch.version' 2> /dev/null \
        || packages="$packages python3-torch libtorch-dev pybind11-dev python3-dev" # tests/test_torch.sh
fi
[ -n "$packages" ] || exit 0

install="apt-get update && apt-get install -y$packages"
if ! command -v apt-get > /dev/null 2>&1; then
    echo "deps: not installed:$packages (Debian's names); please install them"
elif [ "$(id -u)" = 0 ]; then
    echo "deps: $install"
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages > /dev/null \
        || echo "deps: that failed; going on with what is there"
elif command -v sudo > /dev/null 2>&1 && sudo -n true 2> /dev/null; then
    echo "deps: sudo $install"
    sudo -n apt-get update -qq && sudo -n env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends $packages > /dev/null \
        || echo "deps: that failed; going on with what is there"
else
    echo "deps: not installed:$packages.  To install:  sudo sh -c '$install'"
fi
exit 0
