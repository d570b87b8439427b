//! Random questions, in words that both engines know, each with an order that leaves nothing open.

use super::dice::Dice;

const CONDITIONS: [&str; 16] = [
    "policy_version = 1",
    "policy_version >= 2",
    "policy_version IN (0, 3)",
    "policy_version <> 2",
    "turn = 1",
    "reward > 0.5",
    "reward <= 0.25",
    "reward IS NULL",
    "reward_status",
    "NOT response_status",
    "array_length(response) > 6",
    "array_length(response) IS NULL",
    "prompt LIKE '%3%'",
    "input_id IN ('q1', 'q2', 'q5')",
    "sample_id > 'q3'",
    "excluded_reason IS NOT NULL",
];
const KEYS: [&str; 8] = [
    "policy_version",
    "turn",
    "input_id",
    "purpose",
    "state",
    "reward_status",
    "array_length(response) % 3",
    "CASE WHEN reward > 0.5 THEN 'good' ELSE 'bad' END",
];
const MEASURES: [&str; 12] = [
    "count(*)",
    "count(reward)",
    "count(DISTINCT input_id)",
    "sum(reward)",
    "avg(reward)",
    "min(reward)",
    "max(sample_id)",
    "sum(array_length(response))",
    "max(array_length(response))",
    "stddev_pop(reward)",
    "min(prompt)",
    "count(*) FILTER (WHERE turn = 0)",
];
const COLUMNS: [&str; 9] = [
    "reward",
    "prompt",
    "turn",
    "array_length(response)",
    "response[2]",
    "state",
    "reward_status",
    "coalesce(reward, -1)",
    "parent",
];

fn condition(dice: &mut Dice, depth: u32) -> String {
    if depth > 0 && dice.below(2) == 0 {
        let (left, right) = (condition(dice, depth - 1), condition(dice, depth - 1));
        return format!("({left} {} {right})", dice.one_of(&["AND", "OR"]));
    }
    let plain = dice.one_of(&CONDITIONS);
    if dice.below(5) == 0 { format!("NOT ({plain})") } else { format!("({plain})") }
}

/// The question of a seed.
pub(super) fn question(seed: u64) -> String {
    let dice = &mut Dice::new(seed);
    let table = dice.one_of(&["solver", "solver", "checker"]);
    let filter = match dice.below(4) {
        0 => String::new(),
        _ => format!(" WHERE {}", condition(dice, 2)),
    };
    if dice.below(3) == 0 {
        let columns = (0..1 + dice.below(3)).map(|at| format!("{} AS c{at}", dice.one_of(&COLUMNS)));
        let columns = columns.collect::<Vec<_>>().join(", ");
        let limit = if dice.below(2) == 0 { format!(" LIMIT {}", 1 + dice.below(30)) } else { String::new() };
        let order = dice.one_of(&["reward NULLS LAST, ", "reward DESC NULLS LAST, ", ""]);
        return format!(
            "SELECT sample_id, {columns} FROM {table}{filter} ORDER BY {order}sample_id, policy_version, attempt{limit}"
        );
    }
    let (keys, measures) = (dice.below(3), 1 + dice.below(3));
    let measures = (0..measures).map(|at| format!("{} AS m{at}", dice.one_of(&MEASURES)));
    let measures = measures.collect::<Vec<_>>().join(", ");
    if keys == 0 {
        return format!("SELECT {measures} FROM {table}{filter}");
    }
    let named: Vec<String> = (0..keys).map(|at| format!("{} AS k{at}", dice.one_of(&KEYS))).collect();
    let (numbers, order): (Vec<String>, Vec<String>) =
        (1..=keys).map(|at| (at.to_string(), format!("{at} NULLS FIRST"))).unzip();
    let having = if dice.below(4) == 0 { " HAVING count(*) > 3" } else { "" };
    let (named, numbers, order) = (named.join(", "), numbers.join(", "), order.join(", "));
    format!("SELECT {named}, {measures} FROM {table}{filter} GROUP BY {numbers}{having} ORDER BY {order}")
}
