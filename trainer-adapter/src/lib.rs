//! The reference policy, its devices and its gradient cache.
