"""Puts libmoed's header into the package: it is the only description of the library's structures."""
import os
import shutil

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = os.path.dirname(os.path.abspath(__file__))


class BuildWithHeader(build_py):
    def run(self):
        super().run()
        target = os.path.join(self.build_lib, "moed")
        shutil.copyfile(os.path.join(HERE, "..", "include", "moed.h"), os.path.join(target, "moed.h"))


setup(cmdclass={"build_py": BuildWithHeader})
