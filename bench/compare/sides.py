"""The two sides of bench/compare/compare.py: the measuring programs of this tree, built with the libraries of two commits, or
with those of one and of this tree, by the rules of this tree's Makefile and with the same flags.

build/compare/COMMIT holds a commit, with bench/ of this tree in the place of its own, and build/compare/here the programs of
this tree.  They stay, and are made again as far as something has changed."""
import os, re, shutil, subprocess, tarfile

from harness import git, here, version_in

PADS = 4                                          # addresses of the library's code, round by round
PAD = 1040                                        # bytes from one to the next: 16 modulo 64, and other sets of the first cache

# Programs that are linked here, once for each place: what of their own is compiled with them, and the objects that make builds.
LINKED = {'threads/pair': (['threads/pair.c'], ['threads/ours.o', 'threads/reference.o']),
          'tcp/pair': (['tcp/pair.c'], ['tcp/ours.o', 'tcp/reference.o']),
          'threads/numbers': ([], ['threads/numbers.o']), 'threads/counters': ([], ['threads/counters.o'])}


class Missing(Exception):
    """A side is not available; the sentence says why."""


def commit_of(name):
    """(full hash, what to call it) of a commit, a tag or a version"""
    for candidate in (name, 'v' + name):
        full = git('rev-parse', '--verify', '--quiet', candidate + '^{commit}').strip()
        if full:
            break
    else:
        full = last_of(name) if re.fullmatch(r'\d+\.\d+\.\d+', name) else None
    if not full:
        raise Missing('%s is no commit of this repository, no tag, and no version that coll.h has had' % name)
    return full, git('log', '-1', '--format=%h of %cd', '--date=short', full).strip()


def last_of(version):
    """the last commit whose coll.h has this version, or None"""
    commits = git('rev-list', '--first-parent', 'HEAD').split()
    return next((c for c in commits if version_in(git('show', c + ':coll.h')) == version), None)


def unpack(commit, folder):
    """The commit's files; made once, whole or not at all."""
    if os.path.isdir(folder):
        return
    shutil.rmtree(folder + '.new', ignore_errors=True)
    os.makedirs(folder + '.new')
    with subprocess.Popen(['git', 'archive', '--format=tar', commit], stdout=subprocess.PIPE) as archive:
        with tarfile.open(fileobj=archive.stdout, mode='r|') as files:
            files.extractall(folder + '.new')
        archive.stdout.read()                     # what follows the last file, lest git meet a closed pipe
    if archive.returncode:
        raise Missing('git archive %s: exit status %d' % (commit, archive.returncode))
    os.rename(folder + '.new', folder)


def flattened(text):
    """a measuring source for a library from before coll_config had parts"""
    return re.sub(r'\bconfig\.tcp\.', 'config.', re.sub(r'\.tcp = \{\s*([^{}]*?)\s*\}', r'\1', text))


def take_sources(top, folder):
    """bench/ of this tree into the commit's tree, with the times of its files, so that make sees which are new"""
    bench = os.path.join(folder, 'bench')
    shutil.rmtree(bench, ignore_errors=True)
    shutil.copytree(os.path.join(top, 'bench'), bench)
    with open(os.path.join(folder, 'coll.h')) as f:
        if re.search(r'\bcoll_tcp\s+tcp;', f.read()):
            return
    for name in ('common/ours.c', 'instructions.c'):
        path = os.path.join(bench, name)
        times = os.stat(path)
        with open(path) as f:
            text = flattened(f.read())
        with open(path, 'w') as f:
            f.write(text)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


class Side:
    """Programs that are built, with the library of one tree: path(program).  tree: a commit, or '' for this working tree."""

    def __init__(self, tree, runner, top, o):
        self.runner, self.top, self.o = runner, top, o
        self.commit, called = commit_of(tree) if tree else (None, 'this tree, ' + here())
        self.name = called + (' (%s)' % tree if tree and not called.startswith(tree) else '')
        self.paths, self.why, self.own = {}, {}, []

    def make(self, programs):
        """Build what can be built, with the measuring programs of this tree, or else with those of the commit."""
        if not self.commit:
            return self.build(self.top, 'build/compare/here', programs)
        folder = os.path.join(self.top, 'build', 'compare', self.commit[:12])
        unpack(self.commit, folder)
        take_sources(self.top, folder)
        self.build(folder, 'build', programs)
        failed = dict(self.why)
        if failed:
            unpack(self.commit, folder + '.own')
            self.build(folder + '.own', 'build', list(failed))
            self.own = [p for p in failed if p not in self.why]
            self.why = {p: failed[p] for p in self.why}

    def build(self, tree, build, programs):
        """Build the programs in `tree`; those that fail are in self.why."""
        kept, made_with = os.path.join(tree, build), '\n'.join(self.o.make + [self.o.compile, self.o.libs])
        stamp = os.path.join(kept, 'made-with')
        if not os.path.exists(stamp) or open(stamp).read() != made_with:
            shutil.rmtree(kept, ignore_errors=True)
        os.makedirs(kept, exist_ok=True)
        with open(stamp, 'w') as f:
            f.write(made_with)
        command = ['make', '--no-print-directory', '-C', tree, '-f', os.path.join(self.top, 'Makefile'), *self.o.make,
                   'BUILD=' + build]
        targets = {p: [os.path.join(build, x) for x in LINKED.get(p, (None, [p]))[1]] for p in programs}
        all_of_them = sum(targets.values(), [])
        failed = all_of_them and self.runner.command([command + ['-k', '-j%d' % self.o.jobs] + all_of_them], 1800)[0]
        for program in programs:
            self.why.pop(program, None)
            status, _, err = self.runner.command([command + targets[program]], 600) if failed else (0, '', '')
            if status:
                self.why[program] = self.sentence(err)
                continue
            self.paths[program] = os.path.join(kept, program)
            if program in LINKED:
                self.link(tree, program, [os.path.join(tree, x) for x in targets[program]])

    @staticmethod
    def sentence(err):
        """the first line that names the error"""
        found = re.findall(r'.*(?:error|Error|No rule|undefined).*', err) or err.strip().splitlines() or ['no reason given']
        return found[0].strip()

    def link(self, tree, program, objects):
        """The program, and PROGRAM.1, ... with the library's code at other places."""
        path, compiler, libs = self.paths[program], self.o.compile.split(), self.o.libs.split() + ['-lm']
        sources = [os.path.join(tree, 'bench', x) for x in LINKED[program][0]]
        newest = max(os.path.getmtime(x) for x in sources + objects)             # which follow the headers
        for k in range(PADS):
            made, pad = path + ('.%d' % k if k else ''), '%s.%d.c' % (path, k)
            if os.path.exists(made) and os.path.getmtime(made) > newest:
                continue
            with open(pad, 'w') as f:
                f.write('__asm__(".text\\n.skip %d\\n");\nextern int bench_pad;\n' % (PAD * k))
            status, _, err = self.runner.command([compiler + sources + [pad, *objects, '-o', made + '.new'] + libs], 300)
            if status:
                self.why[program] = self.sentence(err)
                return
            os.rename(made + '.new', made)

    def path(self, program, variant=0):
        path = self.paths[program]
        return '%s.%d' % (path, variant) if variant and program in LINKED else path


def both(o, runner, top, programs):
    """(old side, new side)"""
    old, new = Side(o.old, runner, top, o), Side(o.new, runner, top, o)
    old.make(programs)
    new.make([p for p in programs if p not in old.why])
    return old, new
