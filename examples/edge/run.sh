#!/bin/sh
# run.sh - boards that this machine plays: train.c built for 32-bit ARM, a process for each board under qemu, in a network
# namespace of its own, on a switch with ports of 100 Mbit/s in each direction.
# Needs root, iproute2, gcc-arm-linux-gnueabihf with libc6-dev-armhf-cross, qemu-user-static.
#
#   usage: run.sh [STEPS [BATCH]]         BOARDS=4 RATE=100mbit; BOARD_CC=cc BOARD_RUN=env: for this machine
#
# Ends with 77 where no network can be made.  Whatever it makes it removes.
cd "$(dirname "$0")" || exit 1
boards=${BOARDS:-4} rate=${RATE:-100mbit} cc=${BOARD_CC:-arm-linux-gnueabihf-gcc} run=${BOARD_RUN:-qemu-arm-static}
PATH=$PATH:/usr/sbin:/sbin
out=../../build/edge/$$ net=edge$$ pids=
for need in $cc $run ip tc; do
    command -v "$need" > /dev/null || { echo "run.sh: $need is not installed"; exit 77; }
done
[ "$boards" -ge 1 ] && [ "$boards" -le 200 ] || { echo "run.sh: BOARDS is a number from 1 to 200"; exit 2; }

remove() {
    for pid in $pids; do kill "$pid"; done 2> /dev/null
    wait
    for name in $(ip netns list | awk -v net="$net-" 'index($1, net) == 1 { print $1 }'); do ip netns del "$name"; done
    rm -rf $out
}
trap remove EXIT
trap 'exit 1' HUP INT TERM

mkdir -p $out
if ! $cc -std=c11 -Wall -Wextra -O2 -DCOLL_SMALL -static train.c -o $out/train -pthread -lm 2> $out/log; then
    cat $out/log
    exit 1
fi
grep -v 'statically linked applications\|: in function' $out/log

# ---- the network: a bridge, and a cable to each board that is shaped at both ends
port() { # namespace device
    ip netns exec "$1" tc qdisc add dev "$2" root tbf rate "$rate" burst 32kb latency 50ms && ip -n "$1" link set "$2" up
}
plug() { # board
    ip netns add "$net-$1" && ip -n "$net-$1" link set lo up \
        && ip link add eth0 netns "$net-$1" type veth peer name "port$1" netns "$net-switch" \
        && ip -n "$net-switch" link set "port$1" master bridge \
        && ip -n "$net-$1" address add "10.77.1.$(($1 + 1))/24" dev eth0 && port "$net-$1" eth0 && port "$net-switch" "port$1"
}
no_network() { echo "run.sh: no network can be made here: $(tail -n 1 $out/log)"; exit 77; }

{ ip netns add "$net-switch" && ip -n "$net-switch" link add bridge type bridge \
    && ip -n "$net-switch" link set bridge up; } 2> $out/log || no_network
board=0
while [ "$board" -lt "$boards" ]; do
    plug "$board" 2> $out/log || no_network
    board=$((board + 1))
done

# ---- the boards
echo "$boards boards ($cc), $rate, a program of $(stat -c %s $out/train) bytes"
board=0
while [ "$board" -lt "$boards" ]; do
    COLL_RANK=$board COLL_SIZE=$boards COLL_ADDR=10.77.1.1:5000 ip netns exec "$net-$board" $run $out/train "$@" &
    pids="$pids $!" board=$((board + 1))
done
status=0
for pid in $pids; do
    wait "$pid" || status=1
done
pids=
exit $status
