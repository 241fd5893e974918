"""Compiles the back end for the PyTorch that is installed, which the package then requires, and the library into it.

COLL_TORCH_WHEEL=1: the version ends with that of PyTorch (0.4.0.213 for 2.13), so that an index can have a wheel for each."""
import glob
import os
import re
import shlex
import shutil
import subprocess

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist

try:
    import torch
    from torch.utils import cpp_extension
except ImportError:
    torch = None

TOP = '.' if os.path.exists('coll.h') else os.path.join('..', '..')           # in an sdist, in a checkout
HEADER = os.path.join('.' if TOP == '.' else os.path.join(TOP, 'single'), 'coll.h')
BUILT = os.path.join(TOP, 'build', 'torch-package')


def given(name, default=''):
    return shlex.split(os.environ.get(name) or default)


class Compiled(build_ext):
    def run(self):
        if not torch:
            raise SystemExit('coll-torch is compiled for the PyTorch that is installed, and this environment has none: '
                             'pip install torch setuptools, then pip install --no-build-isolation coll-torch')
        super().run()

    def build_extension(self, extension):
        library = os.path.join(self.build_temp, 'coll.o')
        os.makedirs(self.build_temp, exist_ok=True)
        command = [*given('CC', 'cc'), '-std=c11', '-O2', '-fPIC', '-fvisibility=hidden', *given('CPPFLAGS'), *given('CFLAGS'),
                   '-x', 'c', '-DCOLL_IMPLEMENTATION', '-c', HEADER, '-o', library]
        print(shlex.join(command), flush=True)
        subprocess.run(command, check=True)
        extension.extra_objects = [library]
        super().build_extension(extension)


class WithHeader(sdist):
    """The sdist has the library, as one file, and the license."""

    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        for path in (HEADER, os.path.join(TOP, 'LICENSE')):
            shutil.copy(path, base_dir)


def version():
    with open(HEADER, encoding='utf-8') as file:
        found = re.findall(r'^#define COLL_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)', file.read(), re.M)
    return '.'.join(found[:3] + (['%d%02d' % minor] if torch and os.environ.get('COLL_TORCH_WHEEL') else []))


minor = torch and tuple(map(int, torch.__version__.split('.')[:2]))
extension = Extension(
    'coll_torch._c', ['coll_module.cpp'], depends=glob.glob('*.cpp') + glob.glob('*.h'), language='c++',
    include_dirs=[os.path.dirname(HEADER), *(cpp_extension.include_paths() if torch else [])],
    library_dirs=cpp_extension.library_paths() if torch else [], libraries=['c10', 'torch_cpu', 'torch_python'],
    extra_compile_args=['-std=c++20', '-fvisibility=hidden', '-g0', '-DTORCH_API_INCLUDE_EXTENSION_H',
                        '-DTORCH_EXTENSION_NAME=_c'],
    extra_link_args=['-pthread', '-s'])
shutil.rmtree(BUILT, ignore_errors=True)                      # setuptools would pack files of an earlier build, too
os.makedirs(BUILT)
setup(version=version(), install_requires=['torch==%d.%d.*' % minor] if torch else [], ext_modules=[extension],
      cmdclass={'build_ext': Compiled, 'sdist': WithHeader},
      options={'build': {'build_base': BUILT}, 'egg_info': {'egg_base': BUILT}})
