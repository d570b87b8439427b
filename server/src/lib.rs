//! A store seen over HTTP.
