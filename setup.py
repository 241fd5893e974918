"""What pyproject.toml cannot say: $CC compiles libcoll and coll-run, and one wheel serves every Python of a machine.

CC, CPPFLAGS, CFLAGS and LDFLAGS have their usual meaning.  docs/python.md names the optional parts."""
import os
import shlex
import shutil
import subprocess
from distutils.command.build_scripts import build_scripts       # that of setuptools

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

BUILT = os.path.join('build', 'python')


def given(*names):
    return [word for name in names for word in shlex.split(os.environ.get(name, ''))]


def compiled(made, *arguments):
    os.makedirs(os.path.dirname(made), exist_ok=True)
    compiler = given('CC') or ['cc']
    command = [*compiler, '-std=c11', '-O2', *given('CPPFLAGS', 'CFLAGS'), *arguments, '-o', made, '-pthread', *given('LDFLAGS')]
    print(shlex.join(command), flush=True)
    try:
        subprocess.run(command, check=True)
    except OSError as error:
        raise SystemExit(f'coll: cannot run the C compiler {compiler[0]}: {error.strerror}; install one, or set CC') from error
    except subprocess.CalledProcessError as error:
        raise SystemExit(f'coll: the C compiler {compiler[0]} failed with status {error.returncode}; see above') from error


class Library(build_py):
    """libcoll beside the modules, where coll/_load.py looks first.  It binds its own symbols, whatever else is loaded."""

    def run(self):
        super().run()
        series = self.distribution.get_version().rpartition('.')[0]
        folder = self.get_package_dir('coll') if self.editable_mode else os.path.join(self.build_lib, 'coll')
        compiled(os.path.join(folder, f'libcoll.so.{series}'), '-fPIC', '-shared', '-x', 'c', '-DCOLL_IMPLEMENTATION',
                 'single/coll.h', '-Wl,-Bsymbolic', '-Wl,-z,defs', '-s')


class Programs(build_scripts):
    """coll-run as a program, which pip puts beside python3."""

    def run(self):
        for source in self.scripts:
            compiled(os.path.join(self.build_dir, os.path.splitext(os.path.basename(source))[0]), source, '-s')


class Wheel(bdist_wheel):
    """For any Python 3, also without the GIL: ctypes uses no interface of the interpreter."""

    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self):
        return 'py3', 'none', super().get_tag()[2]


class Platform(Distribution):
    def has_ext_modules(self):
        return True


shutil.rmtree(BUILT, ignore_errors=True)                      # setuptools would pack files of an earlier build, too
os.makedirs(BUILT)
setup(distclass=Platform, scripts=['tools/coll-run.c'],
      cmdclass={'build_py': Library, 'build_scripts': Programs, 'bdist_wheel': Wheel},
      options={'build': {'build_base': BUILT}, 'egg_info': {'egg_base': BUILT}})
