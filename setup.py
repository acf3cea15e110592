"""The one compiled part; everything else about the package stands in pyproject.toml."""

import sysconfig

from setuptools import Extension, setup

# It relies on the interpreter's lock: where there is none, plain.py does its work.
locked = not sysconfig.get_config_var("Py_GIL_DISABLED")

setup(
    ext_modules=[
        Extension(
            "holdfast.state._plain",
            [
                "src/holdfast/state/_plain.c",
                "src/holdfast/state/_plain_outline.c",
                "src/holdfast/state/_plain_reading.c",
            ],
            depends=["src/holdfast/state/_plain.h"],
            py_limited_api=True,
            # Without a compiler the package is complete too: plain.py has the same functions.
            optional=True,
        )
    ]
    if locked
    else [],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if locked else {},
)
