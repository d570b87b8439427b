//! Sessions of who may see some tables of agents only.

use forebay_query::{Format, Kind, Session};
use forebay_store::{DataType, Schema};

use crate::archive::fixture::{STEPS, in_memory, move_all};
use crate::fixture::{Run, finished_group, lines};

/// Both agents have rows, a step and a claim each; the checker's rows continue the solver's.
fn both_trained() -> Run {
    let run = Run::with_tables();
    for agent in ["solver", "checker"] {
        finished_group(&run.store.table(agent).unwrap(), 0, "q1", [1.0, 0.0]);
        run.commit_step(agent, &["q1"]);
    }
    run
}

fn refused(session: &Session, sql: &str) -> String {
    let error = session
        .sql_blocking(sql)
        .map(|answer| answer.render(Format::Table, &mut Vec::new(), None))
        .expect_err(sql);
    assert_eq!(error.kind(), Kind::Input, "{sql}: {error}");
    error.to_string()
}

/// Ways to name a table.
const NAMING: [&str; 14] = [
    "SELECT * FROM NAME",
    "SELECT * FROM public.NAME",
    "SELECT * FROM forebay.public.NAME",
    "SELECT * FROM \"NAME\"",
    "SELECT count(*) FROM solver JOIN NAME USING (sample_id)",
    "SELECT 1 FROM solver WHERE EXISTS (SELECT 1 FROM NAME)",
    "WITH them AS (SELECT * FROM NAME) SELECT * FROM them",
    "SELECT * FROM solver UNION ALL SELECT * FROM NAME",
    "SELECT * FROM as_of('NAME', step => 1)",
    "SELECT * FROM as_of('public.NAME', version => 0)",
    "SELECT * FROM lineage('NAME/q1_0_0')",
    "DESCRIBE NAME",
    "SHOW COLUMNS FROM NAME",
    "EXPLAIN SELECT * FROM NAME",
];

#[test]
fn a_table_that_is_not_seen_is_as_one_that_is_not_there() {
    let run = both_trained();
    let narrow = run.session.with_tables(["solver"]);
    for way in NAMING {
        run.rows(&way.replace("NAME", "checker"));
        let hidden = refused(&narrow, &way.replace("NAME", "checker"));
        let missing = refused(&narrow, &way.replace("NAME", "nowhere"));
        assert_eq!(hidden, missing.replace("nowhere", "checker"), "{way}");
    }
    let told = refused(&narrow, "SELECT * FROM checker");
    assert_eq!(told, "no table is named checker among those that this session sees; SHOW TABLES lists all");
    let misspelt = refused(&narrow, "SELECT * FROM cheker");
    assert!(!misspelt.contains("checker"), "{misspelt}");
    let misspelt = refused(&narrow, "SELECT * FROM slover");
    assert!(misspelt.contains("did you mean solver?"), "{misspelt}");
    for sql in [
        "SELECT * FROM solver ORDER BY sample_id",
        "SELECT * FROM as_of('solver', step => 2) ORDER BY sample_id",
    ] {
        assert_eq!(lines(&narrow, sql), lines(&run.session, sql), "{sql}");
    }
}

#[test]
fn nothing_tells_of_a_table_that_is_not_seen() {
    let run = both_trained();
    let narrow = run.session.with_tables(["solver"]);
    for sql in [
        "SHOW TABLES",
        "SELECT * FROM information_schema.tables",
        "SELECT * FROM information_schema.columns",
        "SELECT * FROM system.tables",
        "SELECT * FROM system.columns",
        "SELECT * FROM system.consumers",
        "SELECT * FROM system.claims",
        "SELECT * FROM system.gradients",
        "SELECT * FROM system.episodes",
        "SELECT * FROM lineage('solver/q1_0_0')",
    ] {
        let (all, seen) = (lines(&run.session, sql).join("\n"), lines(&narrow, sql).join("\n"));
        assert!(all.contains("checker") && all.contains("solver"), "{sql}: {all}");
        assert!(!seen.contains("checker") && seen.contains("solver"), "{sql}: {seen}");
    }
    let episode = "SELECT rows, array_length(agents) AS n FROM system.episodes WHERE trajectory_id = 0";
    assert_eq!(lines(&run.session, episode), ["rows,n", "2,2"]);
    assert_eq!(lines(&narrow, episode), ["rows,n", "1,1"], "what it came to in the tables that are seen");
}

#[test]
fn what_tells_of_the_whole_store_is_not_for_who_sees_a_part_of_it() {
    let run = both_trained();
    let narrow = run.session.with_tables(["solver"]);
    let system = |session: &Session| {
        lines(
            session,
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'system' ORDER BY 1",
        )
    };
    let by_table = ["claims", "columns", "consumers", "episodes", "gradients", "tables"];
    assert_eq!(system(&narrow)[1..], by_table);
    let (all, mut whole) = (system(&run.session), 0);
    for name in all[1..].iter().filter(|name| !by_table.contains(&name.as_str())) {
        let told = refused(&narrow, &format!("SELECT * FROM system.{name}"));
        assert!(
            told.contains(name) && told.contains("tells of the whole store") && told.contains("solver only"),
            "{told}"
        );
        whole += 1;
    }
    assert_eq!(whole, 8, "{all:?}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let listed = runtime.block_on(narrow.tables()).unwrap();
    let of = |schema: &str| {
        listed
            .iter()
            .filter(|table| table.schema == schema)
            .map(|table| table.name.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (of("public"), of("system")),
        (vec!["solver".to_owned()], by_table.map(str::to_owned).to_vec())
    );
}

#[test]
fn a_session_is_narrowed_further_and_for_good() {
    let run = both_trained();
    let narrow = run.session.with_tables(["solver", "later"]);
    let none = narrow.with_tables(["checker"]);
    assert_eq!(lines(&none, "SELECT count(*) AS n FROM system.tables"), ["n", "0"]);
    assert_eq!(lines(&none, "SELECT count(*) AS n FROM system.episodes"), ["n", "0"]);
    assert!(refused(&none, "SELECT * FROM system.stats").contains("no table only"));
    let again = none.with_rows_max(Some(1)).with_statement_time_max(None).with_tables(["solver", "checker"]);
    refused(&again, "SELECT * FROM solver");
    refused(&narrow, "SELECT * FROM later");
    run.store.create_table("later", Schema::new().data("reward", DataType::Float32)).unwrap();
    assert_eq!(
        lines(&narrow, "SELECT count(*) AS n FROM later"),
        ["n", "0"],
        "a table is seen once it is there"
    );
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let prepared = runtime.block_on(narrow.prepare("SELECT * FROM checker WHERE reward > ?"));
    assert!(prepared.unwrap_err().to_string().contains("no table is named checker"));
}

#[test]
fn versions_that_left_the_store_are_seen_as_their_table_is() {
    let run = Run::with_tables();
    for version in 0..STEPS {
        for agent in ["solver", "checker"] {
            let input = format!("q{version}");
            finished_group(&run.store.table(agent).unwrap(), version, &input, [1.0, 0.0]);
            run.commit_step(agent, &[&input]);
        }
    }
    let archive = in_memory().0;
    assert!(!move_all(&run.store, &archive).is_empty());
    let with_archive = forebay_query::Options::default().archive(&archive);
    let beside = Session::with_options(&run.store, &with_archive).unwrap();
    let alone = Session::of_archive(&archive, &Default::default()).unwrap();
    for session in [beside, alone] {
        let count = "SELECT count(*) AS n FROM checker WHERE policy_version = 0";
        assert_eq!(lines(&session, count), ["n", "2"]);
        let narrow = session.with_tables(["solver"]);
        assert!(refused(&narrow, count).contains("no table is named checker"));
        assert_eq!(lines(&narrow, "SELECT count(*) AS n FROM solver WHERE policy_version = 0"), ["n", "2"]);
        assert!(!lines(&narrow, "SHOW TABLES").join("\n").contains("checker"));
        for way in ["as_of('checker', version => 0)", "lineage('checker/q0_0_0')"] {
            assert!(
                refused(&narrow, &format!("SELECT * FROM {way}")).contains("no table is named checker"),
                "{way}"
            );
        }
    }
}
