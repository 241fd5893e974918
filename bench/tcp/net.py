"""Network namespaces as hosts: a switch and hosts on it, each with a token bucket on what it sends, and a loopback with one.

Needs root and iproute2.  Everything lives in namespaces of its own, the switch too, so that nothing of the machine's network is
touched and nothing is left when the namespaces are deleted."""
import os, shutil, subprocess

INTERFACE = 'link0'
HEADERS = 14 + 20 + 32                            # of a frame: Ethernet, IPv4, TCP with timestamps


class Failed(Exception):
    pass


def ip(*words):
    p = subprocess.run(['ip', *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if p.returncode:
        raise Failed('ip %s: %s' % (' '.join(words), p.stderr.strip()))


def inside(name, *words):
    return ['ip', 'netns', 'exec', name, *words]


def bucket(name, interface, rate, burst):
    """Limit the output of the interface to `rate` bits a second.  The burst has two of the 64 KiB packets that the kernel
    hands to a card, and is what a transfer may gain on the rate after a pause."""
    p = subprocess.run(inside(name, 'tc', 'qdisc', 'add', 'dev', interface, 'root', 'tbf', 'rate', '%.0fbit' % rate,
                              'burst', str(burst), 'latency', '20ms'), stderr=subprocess.PIPE, text=True)
    if p.returncode:
        raise Failed('tc: ' + p.stderr.strip())


def port(name, interface, rate, room):
    """Let a port of the switch be a quarter faster than its host, with `room` bytes for what waits: more is thrown away.  Frames
    arrive one by one, as at a real switch."""
    subprocess.run(inside(name, 'tc', 'qdisc', 'add', 'dev', interface, 'root', 'tbf', 'rate', '%.0fbit' % (1.25 * rate),
                          'burst', '32k', 'limit', str(room)), check=True)


def listed(rate, count):
    """A rate for each of so many hosts: a list, or one for all."""
    return rate if isinstance(rate, list) else [rate] * count


def why_not():
    """Why there can be no namespaces here, or None."""
    if os.geteuid() != 0:
        return 'needs root'
    if not shutil.which('ip') or not shutil.which('tc'):
        return 'needs ip and tc (Debian: iproute2)'
    try:
        with Namespaces('probe') as space:
            space.hosts(1, 1e9)
            return None
    except Failed as e:
        return str(e)


class Namespaces:
    """A context in which namespaces are made; all are deleted at its end."""

    def __init__(self, what):
        self.prefix, self.names = 'coll-%s-%d' % (what, os.getpid()), []

    def __enter__(self):
        try:
            self.make('0')
        except Failed:
            self.__exit__()
            raise
        return self

    def make(self, suffix):
        name = '%s-%s' % (self.prefix, suffix)
        ip('netns', 'add', name)
        self.names.append(name)
        ip('-n', name, 'link', 'set', 'lo', 'up')
        return name

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(['ip', 'netns', 'del', name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.names = []

    def loopback(self, rate):
        """A namespace whose loopback, both directions together, has this rate."""
        bucket(self.names[0], 'lo', rate, 1 << 20)
        return self.names[0]

    def sites(self, count, rate, mtu):
        """Switches, one for each site, and one between them, with a cable of this rate to each.  Their names."""
        switch, found = self.names[0], []
        for name in ['switch'] + ['site%d' % s for s in range(count if count > 1 else 0)]:
            ip('-n', switch, 'link', 'add', name, 'type', 'bridge')
            ip('-n', switch, 'link', 'set', name, 'mtu', str(mtu), 'up')
            found.append(name)
        for s, name in enumerate(found[1:]):
            up, down = 'up%d' % s, 'down%d' % s
            ip('-n', switch, 'link', 'add', up, 'mtu', str(mtu), 'type', 'veth', 'peer', 'name', down, 'mtu', str(mtu))
            for end, master in ((up, name), (down, 'switch')):
                ip('-n', switch, 'link', 'set', end, 'master', master, 'up')
                bucket(switch, end, rate, 128 << 10)
        return found[1:] or found

    def hosts(self, count, rate, mtu=1500, control=None, room=None, sites=(1, 0)):
        """[(namespace, address)] of hosts around a switch; control: the congestion control, else the machine's; room: the bytes
        that a port of the switch keeps, else all.  With a list of rates they are those of both directions.  sites: how many, and
        the rate of their links to each other; the hosts of each are in a row."""
        switch, found = self.names[0], []
        switches = self.sites(*sites, mtu)
        for h in range(count):
            name, address, plug = self.make('h%d' % h), '10.231.0.%d' % (h + 1), 'port%d' % h
            ip('-n', name, 'link', 'add', INTERFACE, 'mtu', str(mtu), 'type', 'veth', 'peer', 'name', plug, 'mtu', str(mtu),
               'netns', switch)
            ip('-n', switch, 'link', 'set', plug, 'master', switches[h * len(switches) // count], 'up')
            ip('-n', name, 'addr', 'add', address + '/24', 'dev', INTERFACE)
            ip('-n', name, 'link', 'set', INTERFACE, 'up')
            bucket(name, INTERFACE, listed(rate, count)[h], 128 << 10)
            if isinstance(rate, list):
                bucket(switch, plug, rate[h], 128 << 10)
            if control:
                p = subprocess.run(inside(name, 'sysctl', '-qw', 'net.ipv4.tcp_congestion_control=' + control))
                if p.returncode:
                    raise Failed('no congestion control ' + control)
            if room:
                port(switch, plug, rate, room)
                ip('-n', name, 'link', 'set', INTERFACE, 'gso_max_size', str(mtu), 'gso_max_segs', '1')
            found.append((name, address))
        return found


def payload_share(mtu):
    """What of the bits of full frames is the program's."""
    return (mtu - HEADERS + 14) / (mtu + 14)
