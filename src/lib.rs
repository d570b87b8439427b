//! An embedded experience store for reinforcement learning of language-model agents.
