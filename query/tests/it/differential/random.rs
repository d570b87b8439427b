//! Random questions, in words that both engines know, each with an order that leaves nothing open. `@` stands for a table.

use super::dice::Dice;

const CONDITIONS: [&str; 45] = [
    "@.policy_version = 1",
    "@.policy_version >= 2",
    "@.policy_version IN (0, 3)",
    "@.policy_version <> 2",
    "@.turn = 1",
    "@.reward > 0.5",
    "@.reward <= 0.25",
    "@.reward IS NULL",
    "@.reward_status",
    "NOT @.response_status",
    "array_length(@.response) > 6",
    "array_length(@.response) IS NULL",
    "@.prompt LIKE '%3%'",
    "@.input_id IN ('q1', 'q2', 'q5')",
    "@.sample_id > 'q3'",
    "@.odd = 0.1",
    "@.odd > 0.1",
    "@.odd <> 0.1",
    "@.odd <= 0",
    "@.odd IN (0, 0.1, 0.25, 9)",
    "@.odd NOT IN (0.1, 0, 9)",
    "@.odd BETWEEN -0.1 AND 0.1",
    "@.odd = 'NaN'",
    "@.odd > 1e30",
    "isnan(@.odd)",
    "@.odd < @.score",
    "@.odd = @.score",
    "@.score = 0.1",
    "@.score <> 0.25",
    "@.score >= 1e300",
    "@.score IN (0.30000000000000004, -0.0, 7)",
    "@.big = 9223372036854775807",
    "@.big > 9007199254740992",
    "@.big BETWEEN -9223372036854775807 AND -1",
    "@.big IN (0, -1, 9223372036854775806, 9007199254740993)",
    "@.big % 7 = 3",
    "@.note = ''",
    "@.note >= 'abcdefghijkm'",
    "@.note LIKE 'abc%'",
    "@.note IN ('', 'abcdefghijklm', 'ABCDEFGHIJKLM', 'abcdefghijkl')",
    "length(@.note) >= 12",
    "@.input_id IN (SELECT input_id FROM checker WHERE reward < 0.1)",
    "@.odd IN (SELECT odd FROM checker WHERE policy_version = 1 AND turn = 0)",
    "EXISTS (SELECT 1 FROM checker e WHERE e.input_id = @.input_id AND e.odd = @.odd)",
    "NOT EXISTS (SELECT 1 FROM solver e WHERE e.policy_version = @.policy_version AND e.note = @.note AND e.turn > @.turn)",
];
/// What only the present knows.
const CONDITIONS_NOW: [&str; 2] = ["@.excluded_reason IS NOT NULL", "@.state <> 'waiting'"];
const KEYS: [&str; 15] = [
    "@.policy_version",
    "@.turn",
    "@.input_id",
    "@.purpose",
    "@.agent",
    "@.reward_status",
    "array_length(@.response) % 3",
    "CASE WHEN @.reward > 0.5 THEN 'good' ELSE 'bad' END",
    "@.odd",
    "@.odd > 0.1",
    "@.score",
    "@.big",
    "@.note",
    "length(@.note)",
    "@.step",
];
const MEASURES: [&str; 23] = [
    "count(*)",
    "count(@.reward)",
    "count(DISTINCT @.input_id)",
    "sum(@.reward)",
    "avg(@.reward)",
    "min(@.reward)",
    "max(@.sample_id)",
    "sum(array_length(@.response))",
    "max(array_length(@.response))",
    "stddev_pop(@.reward)",
    "min(@.prompt)",
    "count(*) FILTER (WHERE @.turn = 0)",
    "min(@.odd)",
    "max(@.odd)",
    "count(DISTINCT @.odd)",
    "min(@.score)",
    "max(@.score)",
    "min(@.big)",
    "max(@.big)",
    "count(DISTINCT @.big)",
    "max(@.note)",
    "count(DISTINCT @.note)",
    "count(*) FILTER (WHERE @.odd = 0.1 OR @.score = 0.1)",
];
const COLUMNS: [&str; 15] = [
    "@.reward",
    "@.prompt",
    "@.turn",
    "array_length(@.response)",
    "@.response[2]",
    "@.step",
    "@.reward_status",
    "coalesce(@.reward, -1)",
    "@.parent",
    "@.odd",
    "@.score",
    "@.big",
    "@.note",
    "@.odd = 0.1",
    "rank() OVER (PARTITION BY @.policy_version, @.turn ORDER BY @.odd DESC NULLS LAST)",
];
const ORDERS: [&str; 8] = [
    "@.reward NULLS LAST, ",
    "@.reward DESC NULLS LAST, ",
    "@.odd DESC NULLS LAST, ",
    "@.odd NULLS FIRST, ",
    "@.score DESC NULLS FIRST, ",
    "@.big DESC NULLS LAST, ",
    "@.note NULLS LAST, ",
    "",
];
const JOINS: [&str; 10] = [
    "a.input_id = b.input_id AND a.policy_version = b.policy_version",
    "a.sample_id = b.sample_id AND a.policy_version = b.policy_version",
    "b.parent = 'solver/' || a.sample_id AND a.policy_version = b.policy_version",
    "a.odd = b.odd AND a.turn = b.turn AND a.policy_version = b.policy_version",
    "a.score = b.odd AND a.policy_version = b.policy_version",
    "a.big = b.big AND a.input_id = b.input_id",
    "a.note = b.note AND a.input_id = b.input_id",
    "a.group_key = b.group_key AND a.policy_version = b.policy_version AND a.reward > b.reward",
    "a.step = b.step AND a.input_id = b.input_id",
    "(a.odd IS NOT DISTINCT FROM b.odd) AND a.group_key = b.group_key AND a.policy_version = b.policy_version",
];
/// What tells the rows of a table apart.
const IDENTITY: &str = "@.sample_id NULLS LAST, @.policy_version, @.attempt";
/// The columns whose cells have a time.
const DATA: [&str; 9] =
    ["prompt", "response", "logprobs", "reference", "reward", "odd", "score", "big", "note"];

/// Where the rows come from, in our words and in DuckDB's.
struct From {
    ours: String,
    theirs: String,
    aliases: &'static [&'static str],
    is_past: bool,
}

/// The question of a seed, in our words and in DuckDB's.
pub(super) fn question(seed: u64) -> (String, String) {
    let dice = &mut Dice::new(seed);
    let from = from(dice);
    let filter = match dice.below(4) {
        0 => String::new(),
        _ => format!(" WHERE {}", condition(dice, &from, 2)),
    };
    let [before, after] = match dice.below(3) {
        0 => rows(dice, &from, &filter),
        _ => groups(dice, &from, &filter),
    };
    (format!("{before} FROM {}{after}", from.ours), format!("{before} FROM {}{after}", from.theirs))
}

fn from(dice: &mut Dice) -> From {
    let (ours, theirs, left_past) = table(dice, "a");
    if dice.below(5) < 3 {
        return From { ours, theirs, aliases: &["a"], is_past: left_past };
    }
    let (right_ours, right_theirs, right_past) = table(dice, "b");
    let join = dice.one_of(&["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]);
    let on = dice.one_of(&JOINS);
    From {
        ours: format!("{ours} {join} {right_ours} ON {on}"),
        theirs: format!("{theirs} {join} {right_theirs} ON {on}"),
        aliases: &["a", "b"],
        is_past: left_past || right_past,
    }
}

/// A table as it is, or as it was after a step.
fn table(dice: &mut Dice, alias: &str) -> (String, String, bool) {
    let name = dice.one_of(&["solver", "solver", "checker"]);
    if dice.below(5) > 0 {
        let now = format!("{name} {alias}");
        return (now.clone(), now, false);
    }
    let step = 1 + dice.below(3);
    (format!("as_of('{name}', step => {step}) {alias}"), format!("{} {alias}", past(name, step)), true)
}

/// A table as it was after a step, for who has no word for it.
fn past(name: &str, step: u64) -> String {
    let moment = format!("(SELECT ended_at FROM steps WHERE step = {step})");
    let cells = DATA.map(|data| {
        let by_then = format!("coalesce(t.{data}_at <= {moment} OR t.step <= {step}, false)");
        format!(
            "CASE WHEN {by_then} THEN t.{data} END AS {data}, CASE WHEN {by_then} THEN t.{data}_at END AS {data}_at, \
             t.{data}_status AND {by_then} AS {data}_status"
        )
    });
    format!(
        "(SELECT t.* EXCLUDE (is_processing, state, claim, excluded_reason) \
         REPLACE (CASE WHEN t.step <= {step} THEN t.step END AS step, {}) FROM {name} t WHERE t.created_at <= {moment})",
        cells.join(", ")
    )
}

/// Any of them, of any of the tables.
fn of_any(dice: &mut Dice, from: &From, choices: &[&str]) -> String {
    let chosen = dice.one_of(choices).to_owned();
    chosen.replace('@', dice.one_of(from.aliases))
}

fn condition(dice: &mut Dice, from: &From, depth: u32) -> String {
    if depth > 0 && dice.below(2) == 0 {
        let (left, right) = (condition(dice, from, depth - 1), condition(dice, from, depth - 1));
        return format!("({left} {} {right})", dice.one_of(&["AND", "OR"]));
    }
    let plain = match !from.is_past && dice.below(20) == 0 {
        true => of_any(dice, from, &CONDITIONS_NOW),
        false => of_any(dice, from, &CONDITIONS),
    };
    if dice.below(5) == 0 { format!("NOT ({plain})") } else { format!("({plain})") }
}

/// Rows with some of their columns: what comes before `FROM`, and after what follows it.
fn rows(dice: &mut Dice, from: &From, filter: &str) -> [String; 2] {
    let columns = (0..1 + dice.below(3)).map(|at| format!("{} AS c{at}", of_any(dice, from, &COLUMNS)));
    let columns = columns.collect::<Vec<_>>().join(", ");
    let limit = match from.aliases.len() == 1 && dice.below(2) == 0 {
        true => String::new(),
        false => format!(" LIMIT {}", 1 + dice.below(30)),
    };
    let order = of_any(dice, from, &ORDERS);
    // Named apart: an answer in JSON has one value of a name.
    let ids = from.aliases.iter().enumerate().map(|(at, alias)| format!("{alias}.sample_id AS id{at}"));
    let all = from.aliases.iter().map(|alias| IDENTITY.replace('@', alias));
    let (ids, all) = (ids.collect::<Vec<_>>().join(", "), all.collect::<Vec<_>>().join(", "));
    [format!("SELECT {ids}, {columns}"), format!("{filter} ORDER BY {order}{all}{limit}")]
}

/// The same of groups.
fn groups(dice: &mut Dice, from: &From, filter: &str) -> [String; 2] {
    let (keys, measures) = (dice.below(3), 1 + dice.below(3));
    let measures = (0..measures).map(|at| format!("{} AS m{at}", of_any(dice, from, &MEASURES)));
    let measures = measures.collect::<Vec<_>>().join(", ");
    if keys == 0 {
        return [format!("SELECT {measures}"), filter.to_owned()];
    }
    let named: Vec<String> = (0..keys).map(|at| format!("{} AS k{at}", of_any(dice, from, &KEYS))).collect();
    let (numbers, order): (Vec<String>, Vec<String>) =
        (1..=keys).map(|at| (at.to_string(), format!("{at} NULLS FIRST"))).unzip();
    let having = if dice.below(4) == 0 { " HAVING count(*) > 3" } else { "" };
    let (named, numbers, order) = (named.join(", "), numbers.join(", "), order.join(", "));
    [format!("SELECT {named}, {measures}"), format!("{filter} GROUP BY {numbers}{having} ORDER BY {order}")]
}
