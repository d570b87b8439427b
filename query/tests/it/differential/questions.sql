-- rewards by version
SELECT policy_version, count(*) AS n, count(reward) AS scored, avg(reward) AS mean, stddev_pop(reward) AS spread
FROM solver GROUP BY policy_version ORDER BY policy_version;
-- rewards by version and agent of both tables
SELECT policy_version, agent, count(*) AS n, min(reward) AS low, max(reward) AS high
FROM (SELECT policy_version, agent, reward FROM solver UNION ALL SELECT policy_version, agent, reward FROM checker) t
GROUP BY 1, 2 ORDER BY 1, 2;
-- the lowest rewards with their prompts
SELECT sample_id, policy_version, attempt, reward, prompt FROM solver WHERE reward IS NOT NULL
ORDER BY reward, policy_version, sample_id, attempt LIMIT 20;
-- the highest of one version
SELECT sample_id, reward FROM solver WHERE policy_version = 2 AND reward_status
ORDER BY reward DESC, sample_id, attempt LIMIT 7 OFFSET 3;
-- counts by status
SELECT prompt_status, response_status, reward_status, count(*) AS n FROM solver GROUP BY 1, 2, 3 ORDER BY 1, 2, 3;
-- counts by state
SELECT state, count(*) AS n FROM solver GROUP BY state ORDER BY state;
-- reasons
SELECT excluded_reason, count(*) AS n, count(DISTINCT input_id) AS inputs FROM solver GROUP BY 1 ORDER BY 1 NULLS FIRST;
-- groups without spread
SELECT policy_version, group_key, count(*) AS n, max(reward) AS reward FROM solver WHERE reward IS NOT NULL
GROUP BY 1, 2 HAVING min(reward) = max(reward) AND count(*) > 1 ORDER BY 1, 2;
-- groups with all rewards null
SELECT group_key, policy_version FROM solver GROUP BY 1, 2 HAVING count(reward) = 0 ORDER BY 1, 2;
-- lengths
SELECT policy_version, sum(array_length(response)) AS tokens, max(array_length(response)) AS longest, count(array_length(response)) AS n
FROM solver GROUP BY 1 ORDER BY 1;
-- percentiles of lengths
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY CAST(array_length(response) AS DOUBLE)) AS p50,
       percentile_cont(0.95) WITHIN GROUP (ORDER BY CAST(array_length(response) AS DOUBLE)) AS p95 FROM solver;
-- median reward by version
SELECT policy_version, median(CAST(reward AS DOUBLE)) AS m FROM solver WHERE reward IS NOT NULL GROUP BY 1 ORDER BY 1;
-- empty and missing lists are not the same
SELECT response IS NULL AS missing, array_length(response) = 0 AS empty, count(*) AS n FROM solver GROUP BY 1, 2 ORDER BY 1, 2 NULLS FIRST;
-- join of two agents on input id
SELECT s.input_id, count(*) AS pairs, avg(s.reward) AS s, avg(c.reward) AS c FROM solver s JOIN checker c ON s.input_id = c.input_id
GROUP BY 1 ORDER BY 1;
-- join by parent
SELECT s.sample_id, s.policy_version, s.reward, c.reward AS checked FROM solver s JOIN checker c ON c.parent = 'solver/' || s.sample_id
AND c.policy_version = s.policy_version WHERE s.attempt = 0 ORDER BY 1, 2, c.sample_id, c.attempt LIMIT 50;
-- left join keeps who has no match
SELECT s.input_id, count(c.sample_id) AS matches FROM solver s LEFT JOIN checker c ON c.input_id = s.input_id AND c.reward > 0.9
GROUP BY 1 ORDER BY 1;
-- full join
SELECT count(*) AS n, count(a.k) AS a, count(b.k) AS b FROM (SELECT DISTINCT input_id AS k FROM solver) a
FULL JOIN (SELECT DISTINCT input_id AS k FROM checker WHERE policy_version < 2) b ON a.k = b.k;
-- anti join
SELECT DISTINCT input_id FROM solver s WHERE NOT EXISTS (SELECT 1 FROM checker c WHERE c.input_id = s.input_id) ORDER BY 1;
-- semi join
SELECT count(*) AS n FROM solver WHERE input_id IN (SELECT input_id FROM checker WHERE reward < 0.1);
-- not in with nulls
SELECT count(*) AS n FROM solver WHERE reward NOT IN (0.0, 1.0);
-- nulls are not equal
SELECT count(*) AS n FROM solver a JOIN solver b ON a.reward = b.reward WHERE a.policy_version = 0 AND b.policy_version = 1 AND a.turn = 0;
-- nulls can be told apart
SELECT reward IS DISTINCT FROM 0.5 AS differs, count(*) AS n FROM solver GROUP BY 1 ORDER BY 1;
-- coalesce and nullif
SELECT sum(coalesce(reward, -1.0)) AS a, count(nullif(turn, 0)) AS b FROM solver;
-- case
SELECT CASE WHEN reward IS NULL THEN 'none' WHEN reward < 0.25 THEN 'low' WHEN reward < 0.75 THEN 'middle' ELSE 'high' END AS band,
       count(*) AS n FROM solver GROUP BY 1 ORDER BY 1;
-- filtered aggregates
SELECT policy_version, count(*) FILTER (WHERE reward > 0.5) AS good, avg(reward) FILTER (WHERE turn = 1) AS later
FROM solver GROUP BY 1 ORDER BY 1;
-- rollup
SELECT policy_version, turn, count(*) AS n FROM solver GROUP BY ROLLUP (policy_version, turn) ORDER BY 1 NULLS LAST, 2 NULLS LAST;
-- grouping sets
SELECT turn, purpose, count(*) AS n FROM solver GROUP BY GROUPING SETS ((turn), (purpose), ()) ORDER BY 1 NULLS LAST, 2 NULLS LAST;
-- rank in the group
SELECT sample_id, policy_version, attempt, rank() OVER (PARTITION BY policy_version, group_key ORDER BY reward DESC NULLS LAST) AS r
FROM solver WHERE policy_version = 1 ORDER BY 1, 3, 4;
-- advantages by hand
SELECT sample_id, attempt, reward - avg(reward) OVER (PARTITION BY policy_version, group_key) AS centred
FROM solver WHERE reward IS NOT NULL AND policy_version = 3 ORDER BY 1, 2;
-- running mean
SELECT policy_version, mean, avg(mean) OVER (ORDER BY policy_version ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS smooth
FROM (SELECT policy_version, avg(reward) AS mean FROM solver GROUP BY 1) t ORDER BY 1;
-- difference to the version before
SELECT policy_version, mean - lag(mean) OVER (ORDER BY policy_version) AS change
FROM (SELECT policy_version, avg(reward) AS mean FROM solver GROUP BY 1) t ORDER BY 1;
-- the best of each group
SELECT group_key, sample_id, reward FROM solver WHERE policy_version = 0 AND reward IS NOT NULL
QUALIFY row_number() OVER (PARTITION BY group_key ORDER BY reward DESC, sample_id, attempt) = 1 ORDER BY 1, 2;
-- quartiles of rewards
SELECT q, count(*) AS n, min(reward) AS low FROM
(SELECT reward, ntile(4) OVER (ORDER BY reward, policy_version, sample_id, attempt) AS q FROM solver WHERE reward IS NOT NULL) t GROUP BY 1 ORDER BY 1;
-- first tokens
SELECT response[1] AS token, count(*) AS n FROM solver GROUP BY 1 ORDER BY 1 NULLS FIRST;
-- elements out of range are null
SELECT count(response[1]) AS first, count(response[20]) AS twentieth, count(response[1000]) AS none FROM solver;
-- tokens one by one
SELECT token, count(*) AS n FROM (SELECT unnest(response) AS token FROM solver WHERE policy_version = 1) t GROUP BY 1 ORDER BY 1;
-- lists that hold a token
SELECT count(*) AS n FROM solver WHERE list_contains(response, 7);
-- sum of a list
SELECT s, count(*) AS n FROM (SELECT sample_id, policy_version, attempt, sum(token) AS s FROM
(SELECT sample_id, policy_version, attempt, unnest(response) AS token FROM solver) t GROUP BY 1, 2, 3) u GROUP BY 1 ORDER BY n DESC, s LIMIT 10;
-- texts
SELECT count(*) AS n, count(DISTINCT prompt) AS d, min(length(prompt)) AS shortest, max(length(prompt)) AS longest FROM solver;
-- patterns
SELECT count(*) FILTER (WHERE prompt LIKE '%7%') AS seven, count(*) FILTER (WHERE prompt LIKE 'What is _ %') AS digit,
       count(*) FILTER (WHERE prompt ILIKE 'WHAT%') AS any_case, count(*) FILTER (WHERE regexp_like(prompt, '[0-9]{2}')) AS two FROM solver;
-- duckdb: patterns
SELECT count(*) FILTER (WHERE prompt LIKE '%7%') AS seven, count(*) FILTER (WHERE prompt LIKE 'What is _ %') AS digit,
       count(*) FILTER (WHERE prompt ILIKE 'WHAT%') AS any_case, count(*) FILTER (WHERE regexp_matches(prompt, '[0-9]{2}')) AS two FROM solver;
-- parts of texts
SELECT substr(prompt, 1, 6) AS head, count(*) AS n FROM solver GROUP BY 1 ORDER BY 1 NULLS FIRST;
-- texts joined in order
SELECT policy_version, string_agg(sample_id, ',' ORDER BY sample_id, attempt) AS ids FROM solver WHERE input_id = 'q1' GROUP BY 1 ORDER BY 1;
-- parts of the sample id
SELECT sample_id, input_id, turn, trajectory_id, input_id || '_' || turn || '_' || trajectory_id = sample_id AS same
FROM checker ORDER BY 1, policy_version, attempt LIMIT 30;
-- a sample by its id
SELECT policy_version, attempt, reward FROM solver WHERE sample_id = 'q3_1_2' ORDER BY 1, 2;
-- samples by their ids
SELECT sample_id, policy_version, attempt FROM solver WHERE sample_id IN ('q3_1_2', 'q0_0_0', 'nobody_0_0', '') ORDER BY 1, 2, 3;
-- a range of versions
SELECT count(*) AS n FROM solver WHERE policy_version BETWEEN 1 AND 2 AND NOT (policy_version = 2 AND turn = 1);
-- no version
SELECT count(*) AS n, sum(reward) AS s, max(prompt) AS p FROM solver WHERE policy_version > 90;
-- how long until the reward
SELECT policy_version, count(*) AS n, min(reward_at - created_at) < INTERVAL '1 hour' AS quick FROM solver WHERE reward_status
GROUP BY 1 ORDER BY 1;
-- moments
SELECT extract(year FROM created_at) AS y, extract(minute FROM created_at) AS m, count(*) AS n FROM solver GROUP BY 1, 2 ORDER BY 1, 2;
-- truncated moments
SELECT count(DISTINCT date_trunc('second', created_at)) AS seconds FROM solver;
-- correlation
SELECT corr(reward, CAST(array_length(response) AS DOUBLE)) AS c, covar_pop(reward, turn) AS v FROM solver;
-- regression
SELECT regr_slope(reward, policy_version) AS slope, regr_count(reward, policy_version) AS n FROM solver;
-- versions divide
SELECT policy_version / 2 AS half, policy_version % 2 AS odd, count(*) AS n FROM solver GROUP BY 1, 2 ORDER BY 1, 2;
-- set operations
SELECT input_id FROM solver WHERE reward > 0.95 EXCEPT SELECT input_id FROM checker WHERE reward < 0.05 ORDER BY 1;
-- intersections
SELECT input_id FROM solver WHERE reward > 0.9 INTERSECT SELECT input_id FROM checker WHERE reward > 0.9 ORDER BY 1;
-- a subquery for each row
SELECT s.sample_id, s.policy_version, s.attempt FROM solver s WHERE s.reward =
(SELECT max(t.reward) FROM solver t WHERE t.policy_version = s.policy_version) ORDER BY 1, 2, 3;
-- ancestors
WITH RECURSIVE up AS (
  SELECT sample_id, parent, policy_version, 0 AS depth FROM checker WHERE sample_id = 'q2_1_0' AND attempt = 0
  UNION ALL
  SELECT c.sample_id, c.parent, c.policy_version, up.depth + 1 FROM checker c
  JOIN up ON up.parent = 'checker/' || c.sample_id AND up.policy_version = c.policy_version WHERE c.attempt = 0)
SELECT * FROM up ORDER BY policy_version, depth;
-- pass at k
SELECT policy_version, avg(p) AS p FROM (SELECT policy_version, group_key, pass_at_k(reward > 0.5, 2) AS p FROM solver
WHERE reward IS NOT NULL AND attempt = 0 GROUP BY 1, 2) t GROUP BY 1 ORDER BY 1;
-- duckdb: pass at k
SELECT policy_version, avg(CASE WHEN n < 2 THEN NULL WHEN n - c < 2 THEN 1.0 ELSE 1.0 - (n - c) * (n - c - 1.0) / (n * (n - 1.0)) END) AS p
FROM (SELECT policy_version, group_key, count(*) AS n, count(*) FILTER (WHERE reward > 0.5) AS c FROM solver
WHERE reward IS NOT NULL AND attempt = 0 GROUP BY 1, 2) t GROUP BY 1 ORDER BY 1;
-- leave one out
SELECT sample_id, attempt, advantage(reward, 'rloo') OVER (PARTITION BY policy_version, group_key) AS a FROM solver
WHERE policy_version = 2 AND reward IS NOT NULL ORDER BY 1, 2;
-- duckdb: leave one out
SELECT sample_id, attempt, CASE WHEN count(*) OVER g = 1 THEN 0 ELSE
  reward::DOUBLE - (sum(reward::DOUBLE) OVER g - reward::DOUBLE) / (count(*) OVER g - 1) END AS a FROM solver
WHERE policy_version = 2 AND reward IS NOT NULL WINDOW g AS (PARTITION BY policy_version, group_key) ORDER BY 1, 2;
-- spreads
SELECT policy_version, group_key, spread(reward) AS s, zero_spread(reward) AS z FROM solver GROUP BY 1, 2 ORDER BY 1, 2;
-- duckdb: spreads
SELECT policy_version, group_key, max(reward)::DOUBLE - min(reward)::DOUBLE AS s, max(reward) = min(reward) AS z FROM solver GROUP BY 1, 2 ORDER BY 1, 2;
-- divergence
SELECT sample_id, policy_version, attempt, kl(logprobs, reference) AS d FROM solver WHERE logprobs IS NOT NULL AND array_length(logprobs) > 0
ORDER BY 1, 2, 3 LIMIT 60;
-- duckdb: divergence
SELECT sample_id, policy_version, attempt, list_avg(list_transform(list_zip(logprobs, reference),
  lambda z: exp(z[2]::DOUBLE - z[1]::DOUBLE) - 1 - (z[2]::DOUBLE - z[1]::DOUBLE))) AS d FROM solver
WHERE logprobs IS NOT NULL AND len(logprobs) > 0 ORDER BY 1, 2, 3 LIMIT 60;
-- as of a step
SELECT count(*) AS n, count(reward) AS scored, sum(reward) AS s, count(step) AS trained FROM as_of('solver', step => 2);
-- duckdb: as of a step
SELECT count(*) AS n, count(r) AS scored, sum(r) AS s, count(t) AS trained FROM (
  SELECT CASE WHEN reward_at <= (SELECT ended_at FROM steps WHERE step = 2) OR s.step <= 2 THEN reward END AS r,
         CASE WHEN s.step <= 2 THEN s.step END AS t
  FROM solver s WHERE created_at <= (SELECT ended_at FROM steps WHERE step = 2)) u;
-- archived: as of a step
SELECT policy_version AS v, count(*) AS n, count(reward) AS scored, sum(reward) AS s, count(step) AS trained
FROM as_of('solver', step => 1) WHERE policy_version < 2 GROUP BY 1 ORDER BY 1;
-- duckdb: archived: as of a step
SELECT v, count(*) AS n, count(r) AS scored, sum(r) AS s, count(t) AS trained FROM (
  SELECT policy_version AS v, CASE WHEN s.step <= 1 THEN s.step END AS t,
         CASE WHEN reward_at <= (SELECT ended_at FROM steps WHERE step = 1) OR s.step <= 1 THEN reward END AS r
  FROM solver s WHERE created_at <= (SELECT ended_at FROM steps WHERE step = 1) AND policy_version < 2) u
GROUP BY 1 ORDER BY 1;
-- archived: as of a version
SELECT sample_id, attempt, reward_status, round(CAST(reward AS DOUBLE), 6) AS reward, step
FROM as_of('checker', version => 1) WHERE policy_version < 2 AND turn = 0 ORDER BY 1, 2, policy_version LIMIT 80;
-- duckdb: archived: as of a version
WITH ended AS (SELECT ended_at - INTERVAL 1 MICROSECOND AS moment FROM steps WHERE step = 2)
SELECT sample_id, attempt, reward_status AND (reward_at <= moment OR coalesce(s.step <= 1, false)) AS reward_status,
       CASE WHEN reward_at <= moment OR s.step <= 1 THEN round(reward::DOUBLE, 6) END AS reward,
       CASE WHEN s.step <= 1 THEN s.step END AS step
FROM checker s, ended WHERE created_at <= moment AND policy_version < 2 AND turn = 0 ORDER BY 1, 2, policy_version LIMIT 80;
-- samples of a step
SELECT s.step, t.rows AS counted, count(*) AS n FROM solver s JOIN system.steps t ON s.step = t.step GROUP BY 1, 2 ORDER BY 1;
-- duckdb: samples of a step
SELECT s.step, t.rows AS counted, count(*) AS n FROM solver s JOIN steps t ON s.step = t.step GROUP BY 1, 2 ORDER BY 1;
-- a number as a float32 holds it
SELECT count(*) FILTER (WHERE odd = 0.1) AS a, count(*) FILTER (WHERE odd > 0.1) AS b, count(*) FILTER (WHERE odd IN (0.1, 9)) AS c,
       count(*) FILTER (WHERE odd NOT IN (0.1, 0.25, 9)) AS d, count(*) FILTER (WHERE odd BETWEEN 0.1 AND 0.25) AS e,
       count(*) FILTER (WHERE odd IS DISTINCT FROM 0.1) AS f, count(*) FILTER (WHERE score = 0.1) AS g, count(*) FILTER (WHERE odd = score) AS h FROM solver;
-- rewards in a list
SELECT sample_id, policy_version, attempt FROM solver WHERE reward IN (0, 1, 0.1, 0.25, 0.5) ORDER BY 1, 2, 3;
-- the greatest is no number
SELECT policy_version, turn, min(odd) AS low, max(odd) AS high, min(score) AS least, max(score) AS greatest FROM solver GROUP BY 1, 2 ORDER BY 1, 2;
-- one zero and one nan in groups
SELECT odd, count(*) AS n, count(DISTINCT score) AS d FROM solver GROUP BY odd ORDER BY odd NULLS FIRST;
-- zeros and nans in a join
SELECT a.odd, count(*) AS n FROM solver a JOIN checker b ON a.odd = b.odd AND a.input_id = b.input_id GROUP BY 1 ORDER BY 1;
-- float32 joined with float64
SELECT count(*) AS n, count(DISTINCT a.score) AS d FROM solver a JOIN checker b ON a.score = b.odd AND a.turn = b.turn;
-- the order of odd numbers
SELECT odd, sample_id, policy_version, attempt FROM solver ORDER BY odd DESC NULLS LAST, sample_id, policy_version, attempt LIMIT 100;
-- ranks of odd numbers
SELECT DISTINCT odd, rank() OVER (ORDER BY odd) AS r, dense_rank() OVER (ORDER BY odd) AS d FROM checker WHERE odd IS NOT NULL ORDER BY 1;
-- running extremes of odd numbers
SELECT sample_id, policy_version, attempt, max(odd) OVER w AS high, min(odd) OVER w AS low FROM checker WHERE policy_version = 2
WINDOW w AS (ORDER BY sample_id, attempt ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) ORDER BY 1, 2, 3;
-- the greatest of each input
SELECT input_id, max(odd) AS m FROM solver WHERE NOT isnan(odd) GROUP BY 1 ORDER BY m DESC, 1 LIMIT 5;
-- the latest versions by input
SELECT input_id, max(policy_version) AS v FROM solver WHERE turn = 1 GROUP BY 1 ORDER BY v DESC, 1 LIMIT 5;
-- odd numbers in a subquery
SELECT count(*) AS n FROM solver WHERE odd IN (SELECT odd FROM checker WHERE policy_version = 0);
-- odd numbers not in a subquery
SELECT count(*) AS n FROM solver WHERE odd NOT IN (SELECT odd FROM checker WHERE policy_version = 0 AND odd IS NOT NULL AND turn = 1);
-- odd numbers and none in a set
SELECT odd FROM solver WHERE turn = 1 EXCEPT SELECT odd FROM checker WHERE policy_version = 3 ORDER BY 1 NULLS FIRST;
-- the ends of whole numbers
SELECT min(big) AS low, max(big) AS high, count(DISTINCT big) AS d, CAST(sum(CAST(big AS DECIMAL(38, 0))) AS VARCHAR) AS s FROM solver;
-- whole numbers at their ends
SELECT big, count(*) AS n FROM solver WHERE big = 9223372036854775807 OR big = -9223372036854775808 OR big > 9007199254740992 GROUP BY 1 ORDER BY 1;
-- whole numbers beside floats
SELECT count(*) FILTER (WHERE big > 0.5) AS a, count(*) FILTER (WHERE big < -0.5) AS b, count(*) FILTER (WHERE big IN (17, 0, 9007199254740993)) AS c FROM solver;
-- whole numbers joined
SELECT a.big, count(*) AS n FROM solver a JOIN checker b ON a.big = b.big AND a.policy_version = b.policy_version GROUP BY 1 ORDER BY 1;
-- texts at the end of a view
SELECT note, count(*) AS n, min(length(note)) AS l FROM solver GROUP BY 1 ORDER BY 1 NULLS FIRST;
-- texts compared at the end of a view
SELECT count(*) FILTER (WHERE note = '') AS a, count(*) FILTER (WHERE note = 'abcdefghijkl') AS b, count(*) FILTER (WHERE note > 'abcdefghijkl') AS c,
       count(*) FILTER (WHERE note < 'abcdefghijklm') AS d, count(*) FILTER (WHERE note LIKE 'abcdefghijkl_') AS e,
       count(*) FILTER (WHERE note IN ('', 'abcdefghijklm', 'ABCDEFGHIJKLM', 'abcdefghijkn')) AS f FROM solver;
-- texts joined at the end of a view
SELECT a.note, count(*) AS n FROM solver a JOIN checker b ON a.note = b.note AND a.policy_version = b.policy_version GROUP BY 1 ORDER BY 1;
-- extremes of texts
SELECT policy_version, min(note) AS low, max(note) AS high FROM checker GROUP BY 1 ORDER BY 1;
-- groups over a join of two agents
SELECT a.policy_version, b.turn, count(*) AS n, avg(a.reward) AS s, max(b.odd) AS high, count(DISTINCT a.group_key) AS g
FROM solver a LEFT JOIN checker b ON b.parent = 'solver/' || a.sample_id AND b.policy_version = a.policy_version GROUP BY 1, 2 ORDER BY 1, 2 NULLS FIRST;
-- distinct from beside and, or and not
SELECT count(*) FILTER (WHERE odd IS DISTINCT FROM 7 AND turn = 0) AS a, count(*) FILTER (WHERE turn = 1 AND note IS NOT DISTINCT FROM 'a' OR policy_version = 3) AS b,
       count(*) FILTER (WHERE NOT note IS DISTINCT FROM 'a' AND turn = 1) AS c, count(*) FILTER (WHERE big = 17 OR note IS DISTINCT FROM 'a' AND turn = 1) AS d,
       count(*) FILTER (WHERE odd IS NOT DISTINCT FROM score AND note IS NOT DISTINCT FROM NULL OR turn = 1) AS e FROM solver;
-- joined texts beside arithmetic
SELECT 'v' || policy_version % 2 AS a, 2 * turn || '/' || turn + 1 AS b, count(*) AS n FROM solver WHERE 't' || turn + 1 <> 't9' GROUP BY 1, 2 ORDER BY 1, 2;
-- functions that make much of little
SELECT turn, sum(length(repeat('ab', policy_version::BIGINT))) AS a, sum(length(lpad(sample_id, 12, 'xy'))) AS b, sum(array_length(range(policy_version::BIGINT))) AS c,
       sum(length(replace(prompt, ' ', '__'))) AS d, sum(length(regexp_replace(prompt, '[0-9]', 'ddd', 'g'))) AS e, sum(levenshtein(sample_id, input_id)) AS f
FROM solver GROUP BY 1 ORDER BY 1;
