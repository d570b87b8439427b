//! The rules of the planner, with those of the store among them.
//!
//! They go before the planner decides what is to be spread over partitions by what, so that it spreads by what is there.

use std::sync::Arc;

use datafusion::optimizer::{Analyzer, AnalyzerRule, Optimizer, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;

use crate::ending::{EndableJoins, looking};
use crate::firsts::FirstGroups;
use crate::floats::{ComputedFloats, FloatLiterals};
use crate::functions::{self, Limits};
use crate::groups::GroupsByKind;
use crate::late::ValuesLate;
use crate::merged::MergedJoins;
use crate::numbers::TextsByNumber;

/// The rule for groups of which only the first are wanted.
const FIRSTS: &str = "LimitAggregation";
/// The rule that chooses the sides of joins by hash.
const SIDES: &str = "join_selection";
/// The rule of the planner that goes after those of the store.
const AFTER: &str = "EnsureRequirements";
/// The rule that gives other work a turn where plans read; joins follow. Filters that plans make as they run are handed down
/// later, through what stands in their way by then.
const TURNS: &str = "EnsureCooperative";

/// The rules that see a statement as it was written: numbers in it get their types before these are made equal,
/// and computed floats are looked at when all types are known.
/// So are the calls that need bounds, before anything is computed.
pub(crate) fn of_analysis(limits: Limits) -> Vec<Arc<dyn AnalyzerRule + Send + Sync>> {
    let mut rules = Analyzer::new().rules;
    rules.insert(0, Arc::new(FloatLiterals));
    rules.insert(1, functions::bounded(limits));
    rules.push(Arc::new(ComputedFloats));
    looking(rules, |rule| Arc::new(rule))
}

/// The engine's own, which look at the end of their statement.
pub(crate) fn of_optimizing() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    looking(Optimizer::new().rules, |rule| Arc::new(rule))
}

/// All rules, in their order. Texts become numbers first: rows are told apart by these.
pub(crate) fn rules() -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let mut rules = PhysicalOptimizer::new().rules;
    for rule in &mut rules {
        if rule.name() == FIRSTS {
            *rule = Arc::new(FirstGroups(rule.clone()));
        }
    }
    if let Some(at) = rules.iter().position(|rule| rule.name() == SIDES) {
        rules.insert(at, Arc::new(MergedJoins));
    }
    if let Some(at) = rules.iter().position(|rule| rule.name() == AFTER) {
        rules.insert(at, Arc::new(TextsByNumber));
        rules.insert(at + 1, Arc::new(GroupsByKind));
        rules.insert(at + 2, Arc::new(ValuesLate));
    }
    if let Some(at) = rules.iter().position(|rule| rule.name() == TURNS) {
        rules.insert(at + 1, Arc::new(EndableJoins));
    }
    looking(rules, |rule| Arc::new(rule))
}
