"""Measurements of Holdfast beside the systems that people use today.

python -m benchmarks [--quick] [--only NAME]

Each module in `benchmarks.figures` measures one figure and says what it aimed for. Peer and ours
take turns within one process wherever time is compared, so that noise hits both alike; both commit
with ``synchronous=FULL``. The output is what was measured, met or not.
"""
