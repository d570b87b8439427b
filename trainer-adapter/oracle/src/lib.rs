//! Nothing but a test: the reference policy's gradients against candle's (`cargo test -p forebay-gradient-oracle`).
//!
//! It is a package of its own because candle turns on features of crates that DataFusion shares.
