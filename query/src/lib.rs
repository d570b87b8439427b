//! SQL over a store, by DataFusion.
