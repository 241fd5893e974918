"""What docs/python.md shows runs."""
import os
import re
import subprocess
import sys
import tempfile
import unittest

from support import HERE, launched

PAGE = os.path.join(HERE, '..', '..', '..', 'docs', 'python.md')


class Page(unittest.TestCase):
    def test_pieces(self):
        with open(PAGE, encoding='utf-8') as file:
            pieces = re.findall(r'```python\n(.*?)```', file.read(), re.S)
        self.assertGreater(len(pieces), 4)
        with tempfile.TemporaryDirectory() as folder:
            for piece in pieces:
                with self.subTest(piece):
                    path = os.path.join(folder, 'piece.py')
                    with open(path, 'w', encoding='utf-8') as file:
                        file.write(piece)
                    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=60)
                    self.assertEqual((done.returncode, done.stderr), (0, ''))
                    if 'coll.init() as' in piece:
                        done = launched(3, path)
                        self.assertEqual((done.returncode, done.stderr), (0, ''))

    def test_every_method_is_there(self):
        """The tables name all features."""
        import coll
        with open(PAGE, encoding='utf-8') as file:
            text = file.read()
        for name in [name for name in coll.errors.__dict__ if name.endswith('Error') and name != 'Error']:
            self.assertIn(f'`{name}`', text)
        for name in coll._abi.KINDS:
            if not name.startswith('neighbor') and hasattr(coll.Comm, name):
                self.assertIn(f'{name}', text)


if __name__ == '__main__':
    unittest.main()
