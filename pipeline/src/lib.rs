//! The rules of reinforcement-learning data flow.
