//! Rollout workers and staged writers.
