"""The one compiled part; everything else about the package stands in pyproject.toml."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "holdfast.state._plain",
            ["src/holdfast/state/_plain.c"],
            py_limited_api=True,
            # Without a compiler the package is complete too: plain.py has the same functions.
            optional=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
