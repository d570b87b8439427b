//! The six questions.

/// One question: what it is called, and how it is put to most engines and to DuckDB.
pub(crate) struct Question {
    pub(crate) name: &'static str,
    pub(crate) sql: &'static str,
    pub(crate) duckdb: &'static str,
}

const fn same(name: &'static str, sql: &'static str) -> Question {
    Question { name, sql, duckdb: sql }
}

pub(crate) const QUESTIONS: [Question; 6] = [
    same(
        "reward mean and deviation by version and agent",
        "SELECT policy_version, agent, avg(reward) AS mean, stddev_pop(reward) AS deviation, count(*) AS n
         FROM solver GROUP BY policy_version, agent",
    ),
    same(
        "the 20 lowest rewards with their prompts",
        "SELECT reward, length(prompt) AS characters, prompt FROM solver WHERE reward IS NOT NULL
         ORDER BY reward, sample_id, policy_version LIMIT 20",
    ),
    same(
        "counts by status",
        "SELECT reward_status, response_status, count(*) AS n FROM solver GROUP BY reward_status, response_status",
    ),
    same(
        "groups without spread",
        "SELECT policy_version, group_key, count(*) AS n FROM solver
         GROUP BY policy_version, group_key HAVING min(reward) = max(reward)",
    ),
    Question {
        name: "length percentiles",
        sql: "SELECT policy_version, percentile_cont(0.5) WITHIN GROUP (ORDER BY CAST(array_length(response) AS DOUBLE)) AS p50,
              percentile_cont(0.95) WITHIN GROUP (ORDER BY CAST(array_length(response) AS DOUBLE)) AS p95
              FROM solver GROUP BY policy_version",
        duckdb: "SELECT policy_version, quantile_cont(len(response)::DOUBLE, 0.5) AS p50, quantile_cont(len(response)::DOUBLE, 0.95) AS p95
              FROM solver GROUP BY policy_version",
    },
    same(
        "two agents joined on the input",
        "SELECT count(*) AS n, avg(s.reward - c.reward) AS gain FROM solver s JOIN checker c ON s.input_id = c.input_id",
    ),
];
