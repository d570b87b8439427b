//! What the benchmarks share: workloads, limits and the printed row.
