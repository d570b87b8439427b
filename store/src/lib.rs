//! Tables, extents, log, claims and steps: the engine.
