#!/bin/sh
# test_ssh.sh - coll-run -H by ssh itself, with keys of this run's own, on a free port of 127.0.0.1 and 127.0.0.2.
#
# The daemon is this script's child and ends with it.  It is sshd of this machine, or the one that tools/deps.sh has unpacked,
# and not installed, in build/openssh.  As root sshd takes a user of that name, and /run/sshd; where the machine has not got
# them, the daemon finds them in a mount namespace of its own.
#
# usage: [CC=cc] [CFLAGS=...] sh tests/programs/test_ssh.sh
#
# Prints "ok - name" or "FAILED - name: detail" for each check and ends with "N passed, N failed".  Where ssh cannot be tested it
# says why; with CI set that fails.
# shellcheck disable=SC2046,SC2086,SC2154

. "$(dirname "$0")/run_jobs.sh"

skip() { # why
    echo "skipped - ssh: $1"
    [ -z "$CI" ] || failed=$((failed + 1))
    echo "$passed passed, $failed failed"
    exit $failed
}

unpacked=$top/build/openssh
sshd=$(PATH=$PATH:/usr/sbin:/usr/local/sbin command -v sshd) || sshd=$unpacked/usr/sbin/sshd
[ -x "$sshd" ] || skip "there is no sshd (Debian: openssh-server; \`make deps\` unpacks it in build/openssh)"
command -v ssh-keygen > /dev/null || skip 'there is no ssh (Debian: openssh-client)'
missing=$(ldd "$sshd" | sed -n 's/^[[:space:]]*\(.*\) => not found/\1/p' | xargs)
[ -z "$missing" ] || skip "$sshd needs $missing"

for key in host user; do ssh-keygen -q -t ed25519 -N '' -f "$dir/ssh_$key"; done
port=$("$child" port)
set -- "$sshd" -D -e -f /dev/null -p "$port" -h "$dir/ssh_host" -o ListenAddress=127.0.0.1 -o ListenAddress=127.0.0.2 \
    -o PidFile=none -o UsePAM=no -o "AuthorizedKeysFile=$dir/ssh_user.pub" -o StrictModes=no
for part in Session Auth; do                    # programs that newer versions run
    program=$unpacked/usr/lib/openssh/sshd-$(echo $part | tr SA sa)
    [ "$sshd" != "$unpacked/usr/sbin/sshd" ] || [ ! -x "$program" ] || set -- "$@" -o "Sshd${part}Path=$program"
done
if [ "$(id -u)" = 0 ] && { ! getent passwd sshd || [ ! -d /run/sshd ]; } > /dev/null; then
    unshare -m true 2> unshare.err || skip "root has no user sshd here, and may not make a namespace: $(cat unshare.err)"
    { grep -v '^sshd:' /etc/passwd; echo 'sshd:x:65534:65534::/run/sshd:/usr/sbin/nologin'; } > passwd
    own='mount --bind passwd /etc/passwd && mount -t tmpfs -o mode=755 none /run && mkdir /run/sshd && exec "$@"'
    set -- unshare -m sh -c "$own" sh "$@"
fi
"$@" 2> sshd.log &
daemon=$!
jobs_started="$jobs_started $daemon"
if ! until_true "$child" dial "$port" 2> /dev/null; then
    check 'ssh: the daemon starts' yes "$(tail -n 3 sshd.log)"
    echo "$passed passed, $failed failed"
    exit 1
fi

ssh="ssh -p $port -i '$dir/ssh_user' -F none -o UserKnownHostsFile=/dev/null -o StrictHostKeyChecking=no -o LogLevel=ERROR"
"$run" --rsh "$ssh" -H 127.0.0.1,127.0.0.2 "$child" words "it's" '"a  b"' > ssh.out 2> ssh.err
check 'ssh: two hosts' '0 4' "$? $(grep -cE "^\[(0 127\.0\.0\.1|1 127\.0\.0\.2)\] (it's|\"a  b\")$" ssh.out)"
"$run" --rsh "$ssh" -H 127.0.0.1,127.0.0.2 sh -c "$family" ssh "$child" > /dev/null 2>&1 &
job=$!
check 'ssh: ranks run' 0 "$(until_true all_family ssh; echo $?)"
kill -9 $job
wait $job
check 'ssh: coll-run is killed, nothing is left' gone "$(gone_in_time $(family_of ssh) $(cat ssh.keeper.?))"
"$run" --rsh "$ssh" -H daemon@127.0.0.1 true 2> ssh.err
check 'ssh: one that may not come in' '1 1' "$? $(grep -c 'what connects to it exited with status 255' ssh.err)"
[ $failed -eq 0 ] || cat sshd.log
kill $daemon

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
