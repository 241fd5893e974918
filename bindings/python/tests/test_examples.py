"""The digits, trained in NumPy: the same bits on all ranks, and for threads and processes; the loss of the C program."""
import os
import re
import subprocess
import sys
import unittest

from support import HERE, launched

EXAMPLE = os.path.join(HERE, '..', '..', '..', 'examples', 'python', 'train_digits.py')


class Digits(unittest.TestCase):
    def test_bits(self):
        expected = subprocess.run([os.environ['COLL_DIGITS'], '--json'], capture_output=True, text=True, check=True).stdout
        loss = float(re.search(r'"loss":([0-9.]+)', expected)[1])
        for ranks in (1, 2, 4):
            with self.subTest(ranks=ranks):
                threads = subprocess.run([sys.executable, EXAMPLE, str(ranks)], capture_output=True, text=True)
                processes = launched(ranks, EXAMPLE)
                self.assertEqual((threads.returncode, processes.returncode), (0, 0), threads.stderr + processes.stderr)
                self.assertEqual(threads.stdout, processes.stdout)      # with the bits of the weights
                self.assertIn('identical bits on every rank', threads.stdout)
                self.assertAlmostEqual(float(re.search(r'loss ([0-9.]+)', threads.stdout)[1]), loss, delta=2e-5)


class Leaves(unittest.TestCase):
    def test_bits(self):
        example = os.path.join(os.path.dirname(EXAMPLE), 'leaves.py')
        texts = set()
        for ranks in (1, 2, 3, 4, 5, 7, 8):
            threads = subprocess.run([sys.executable, example, str(ranks)], capture_output=True, text=True)
            processes = launched(ranks, example)
            self.assertEqual((threads.returncode, processes.returncode), (0, 0), threads.stderr + processes.stderr)
            texts |= {threads.stdout, processes.stdout}
        self.assertEqual(len(texts), 1, texts)
        self.assertRegex(texts.pop(), '^weights [0-9a-f]{16}\\n$')


if __name__ == '__main__':
    unittest.main()
