#!/bin/sh
# build.sh - a program for a Cortex-M3 of the MPS2 board: 4 MiB for programs at 0, 4 MiB of memory, and what it prints goes to the
# debugger (semihosting), which qemu plays.
#
#   usage: sh examples/bare/build.sh SOURCE PROGRAM [FLAG...]
source=$1 program=$2
shift 2
exec "${CROSS:-arm-none-eabi-}gcc" --specs=picolibc.specs --oslib=semihost --crt0=semihost -mcpu=cortex-m3 -mthumb -std=c11 -Os \
    -Wall -Wextra -Wpedantic -Wno-type-limits -ffp-contract=off -ffunction-sections -fdata-sections \
    -DCOLL_TINY -DCOLL_NO_MALLOC "$@" "$source" -o "$program" -Wl,--gc-sections -Wl,--defsym=__flash=0 \
    -Wl,--defsym=__flash_size=0x400000 -Wl,--defsym=__ram=0x20000000 -Wl,--defsym=__ram_size=0x400000
