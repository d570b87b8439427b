//! What the engine says of itself.

use forebay_query::Session;
use forebay_store::{
    Dtype, GradientId, HostFolder, MicroBatch, ObjectOptions, Options, Policy, StepPlan, Store, TensorBytes,
    Wait, Which,
};
use serde_json::{Value as Json, json};

use crate::fixture::{Run, finished_group, lines};

// FX-11
#[test]
fn every_column_has_a_class() {
    let run = Run::with_tables();
    let classes = |class: &str| {
        run.column(&format!(
            "SELECT column_name FROM system.columns WHERE table_name = 'solver' AND class = '{class}' ORDER BY position"
        ))
    };
    assert_eq!(classes("data"), ["prompt", "response", "reward"]);
    let status =
        ["prompt_status", "prompt_at", "response_status", "response_at", "reward_status", "reward_at"];
    assert_eq!(classes("status"), status);
    assert_eq!(classes("meta"), forebay_store::META_COLUMNS);
    let types = run
        .rows("SELECT data_type, storage FROM system.columns WHERE table_name = 'solver' AND class = 'data'");
    let expected = [
        json!({"data_type": "utf8", "storage": "view"}),
        json!({"data_type": "list<int32>", "storage": "slice"}),
        json!({"data_type": "float32", "storage": "inline"}),
    ];
    assert_eq!(types, expected);
}

#[test]
fn the_positions_are_those_of_select_star() {
    let run = Run::with_tables();
    let named =
        run.column("SELECT column_name FROM system.columns WHERE table_name = 'solver' ORDER BY position");
    let answer = run.session.sql_blocking("SELECT * FROM solver").unwrap();
    let shown: Vec<&str> = answer.schema.fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!(named, shown);
}

// FX-16
#[test]
fn a_gradient_lists_the_samples_that_made_it() {
    let (run, step, claim) = Run::busy();
    let held = claim.gradient_id().unwrap();
    let samples_of = |gradient: &GradientId| {
        let sql = format!(
            "SELECT s.sample_id FROM solver s JOIN system.gradients g USING (step, claim)
             WHERE g.gradient = '{gradient}' AND g.table_name = 'solver' ORDER BY s.sample_id"
        );
        run.column(&sql)
    };
    assert!(samples_of(&held).is_empty(), "it is in no cache");
    let taken: Vec<Json> = claim.sample_ids().iter().map(|id| json!(id.to_string())).collect();
    claim.accumulated().unwrap();
    let columns = "SELECT gradient, policy, consumer, sequence_in_step, cache_epoch, state FROM system.gradients WHERE step = 2";
    let row = json!({"gradient": held.to_string(), "policy": "solver", "consumer": "train-solver", "sequence_in_step": 0,
        "cache_epoch": 0, "state": "accumulated"});
    assert_eq!(run.rows(columns), [row]);
    drop(step);
    assert!(run.rows(columns).is_empty(), "the cache is gone");
    // Of every gradient that a step used, what the store says and nothing else.
    let used: Vec<GradientId> =
        run.store.replay(1).unwrap().iter().map(|batch| batch.gradient_id().clone()).collect();
    let listed = run
        .column("SELECT gradient FROM system.gradients WHERE step = 1 AND state = 'consumed' ORDER BY claim");
    assert_eq!(listed, used.iter().map(|id| json!(id.to_string())).collect::<Vec<_>>());
    for gradient in used.iter().filter(|gradient| gradient.policy == "solver") {
        let samples: Vec<Json> =
            run.store.samples_of(gradient).unwrap().iter().map(|id| json!(id.to_string())).collect();
        assert_eq!(samples_of(gradient), samples);
        assert!(!samples.is_empty() && samples != taken);
    }
}

// FX-12
#[test]
fn a_claim_is_seen_from_its_granting_to_its_end() {
    let (run, step, claim) = Run::busy();
    let sql = "SELECT consumer, table_name, state, rows, step, sequence_in_step, granted_at < deadline AS leased, \
               accumulated_at, ended_at FROM system.claims WHERE step = 2";
    let leased = json!({"consumer": "train-solver", "table_name": "solver", "state": "leased", "rows": 2, "step": 2,
        "sequence_in_step": 0, "leased": true, "accumulated_at": null, "ended_at": null});
    assert_eq!(run.rows(sql), [leased]);
    let holder = run.column(
        "SELECT DISTINCT c.owner FROM solver s JOIN system.claims c USING (claim) WHERE is_processing",
    );
    assert_eq!(holder, [format!("step 2 of process {}", std::process::id())]);

    claim.accumulated().unwrap();
    let times = "SELECT accumulated_at >= granted_at AS later, ended_at IS NULL AS open FROM system.claims WHERE step = 2";
    assert_eq!(run.rows(times), [json!({"later": true, "open": true})]);
    drop(step);
    let ended = "SELECT state, ended_at >= accumulated_at AS later FROM system.claims WHERE step = 2";
    assert_eq!(run.rows(ended), [json!({"state": "returned", "later": true})]);
}

// FX-96
#[test]
fn what_waits_and_what_is_worked_on_is_seen_for_every_agent() {
    let run = Run::with_tables();
    let shown = || {
        let rows = run.rows(
            "SELECT c.consumer, c.ready_rows, c.processing_rows, c.future_rows, c.current_version, \
                    (SELECT count(*) FROM solver WHERE is_processing) AS held \
             FROM system.consumers c ORDER BY consumer DESC",
        );
        let number = |row: &Json, column: &str| row[column].as_u64().unwrap();
        let queue = ["ready_rows", "processing_rows", "future_rows", "current_version"];
        assert_eq!(number(&rows[0], "held"), number(&rows[0], "processing_rows"), "{rows:?}");
        [0, 1].map(|at| queue.map(|column| number(&rows[at], column)))
    };
    assert_eq!(shown(), [[0; 4]; 2]);
    let [solver, checker] = ["solver", "checker"].map(|name| run.store.table(name).unwrap());
    finished_group(&solver, 0, "q1", [1.0, 0.0]);
    finished_group(&solver, 0, "q2", [1.0, 0.0]);
    finished_group(&solver, 1, "q3", [1.0, 0.0]);
    finished_group(&checker, 0, "q1", [1.0, 0.0]);
    assert_eq!(shown(), [[4, 0, 2, 0], [2, 0, 0, 0]], "a version that is still to come waits apart");
    let train = run.store.consumer("train-solver").unwrap();
    let step = run.store.begin_step(StepPlan::new().groups(&train, ["q1", "q2"])).unwrap();
    let claim = step.next(&train, MicroBatch::of(2), Wait::No).unwrap().unwrap();
    assert_eq!(shown(), [[2, 2, 2, 0], [2, 0, 0, 0]]);
    claim.accumulated().unwrap();
    step.next(&train, MicroBatch::of(2), Wait::No).unwrap().unwrap().accumulated().unwrap();
    assert_eq!(shown(), [[0, 4, 2, 0], [2, 0, 0, 0]]);
    step.commit([("solver", vec![])]).unwrap();
    assert_eq!(shown(), [[2, 0, 0, 1], [2, 0, 0, 0]]);
}

#[test]
fn steps_and_policies_tell_what_moved() {
    let (run, _step, _claim) = Run::busy();
    let steps = run.rows(
        "SELECT step, state, rows, updates, ended_at >= begun_at AS ended FROM system.steps ORDER BY 1",
    );
    let expected = [
        json!({"step": 1, "state": "committed", "rows": 4, "updates": [{"policy": "solver", "version": 1}], "ended": true}),
        json!({"step": 2, "state": "open", "rows": 0, "updates": [], "ended": null}),
    ];
    assert_eq!(steps, expected);
    let policies = run.rows("SELECT policy, version, objects FROM system.policies ORDER BY 1");
    let expected = [
        json!({"policy": "checker", "version": 0, "objects": []}),
        json!({"policy": "solver", "version": 1, "objects": []}),
    ];
    assert_eq!(policies, expected);
    let ready = run.rows("SELECT consumer, kind, ready_rows FROM system.consumers ORDER BY 1");
    let expected = [
        json!({"consumer": "train-checker", "kind": "trainer", "ready_rows": 2}),
        json!({"consumer": "train-solver", "kind": "trainer", "ready_rows": 0}),
    ];
    assert_eq!(ready, expected);
}

#[test]
fn the_objects_of_a_policy_are_listed() {
    let run = Run::empty();
    let object = run.store.put_object("solver", 3, b"weights").unwrap();
    run.store.create_policy("solver", 3, std::slice::from_ref(&object)).unwrap();
    let objects = run.column("SELECT objects FROM system.policies");
    let crc32c = format!("{:08x}", object.crc32c);
    assert_eq!(objects, [json!([{"key": "solver", "version": 3, "bytes": 7, "crc32c": crc32c}])]);
    assert_eq!(
        run.column("SELECT sum(o['bytes']) FROM (SELECT unnest(objects) AS o FROM system.policies)"),
        [7]
    );
}

/// All columns of `system.objects` but the time, by key and version.
fn objects(session: &Session) -> Vec<String> {
    let sql = "SELECT key, version, tier, bytes, leases, once, crc32c, policy, created_at > now() - INTERVAL '1 hour' \
               AS recent FROM system.objects ORDER BY key, version, policy";
    lines(session, sql)[1..].to_vec()
}

#[test]
fn objects_that_are_set_are_listed_with_their_leases_and_those_of_policies_with_their_policy() {
    let directory = tempfile::tempdir().unwrap();
    let host = ObjectOptions::default().host_folder(HostFolder::At(directory.path().join("host")));
    let options = Options::default().objects(host);
    let store = Store::open(directory.path().join("store"), options.clone()).unwrap();
    let session = Session::new(&store).unwrap();
    let named = store.put_object("state", 3, b"moments").unwrap();
    let policy = Policy::volatile().version(3).objects(std::slice::from_ref(&named));
    store.declare_policy("checker", policy).unwrap();
    let crc32c = format!("{:08x}", named.crc32c);
    let of_policy = format!("state,3,disk,7,,false,{crc32c},checker,");
    assert_eq!(objects(&session), std::slice::from_ref(&of_policy));
    assert!(store.object_stats().is_none(), "to look makes no memory for objects");

    let bytes = TensorBytes { class: "weights", name: "w", dtype: Dtype::U8, shape: &[3], bytes: &[1, 2, 3] };
    let set = store.objects().unwrap();
    assert_eq!(set.set("solver", &[bytes]).unwrap(), 1);
    let size = set.list()[0].manifest.bytes();
    let of_host = format!("solver,1,host,{size},0,false,,,true");
    assert_eq!(objects(&session), [of_host, of_policy.clone()]);
    let held = set.get("solver", Which::Latest).unwrap();
    let spilled = set.reference("solver", 1).unwrap();
    store
        .declare_policy("solver", Policy::volatile().version(1).objects(std::slice::from_ref(&spilled)))
        .unwrap();
    let crc32c = format!("{:08x}", spilled.crc32c);
    let of_both = |leases: &str| format!("solver,1,host+disk,{size},{leases},false,{crc32c},solver,true");
    assert_eq!(objects(&session), [of_both("1"), of_policy.clone()]);
    // Beside the process that sets them.
    let beside = Store::open(directory.path().join("store"), options.read_only(true)).unwrap();
    assert_eq!(objects(&Session::new(&beside).unwrap()), [of_both(""), of_policy]);
    drop(held);
}

#[test]
fn extents_pins_and_counters_are_those_of_the_store() {
    let (run, _step, _claim) = Run::busy();
    let extents: Vec<Json> = run
        .store
        .extents()
        .iter()
        .map(|extent| {
            json!({"extent": extent.number, "generation": extent.generation, "bytes": extent.bytes,
            "live_bytes": extent.live_bytes, "live_values": extent.live_values, "sealed": extent.sealed})
        })
        .collect();
    assert_eq!(run.rows("SELECT * FROM system.extents"), extents);
    let texts = run.column("SELECT sum(live_values) FROM system.extents");
    assert!(texts[0].as_u64().unwrap() >= 10, "a prompt of every row lies in an extent: {texts:?}");

    let held = run.store.snapshot_for("a slow reader");
    let pin = "SELECT owner, since <= now() AS since, commit, bytes, memory_bytes, overdue FROM system.pins WHERE owner = 'a slow reader'";
    let commit = held.commit();
    let expected = json!({"owner": "a slow reader", "since": true, "commit": commit, "bytes": 0, "memory_bytes": 0, "overdue": false});
    assert_eq!(run.rows(pin), [expected]);
    run.store.table("solver").unwrap().insert(1, "q9_0_0", [("reward", 1.0.into())]).unwrap();
    let memory = run.column("SELECT memory_bytes FROM system.pins WHERE owner = 'a slow reader'");
    assert!(memory[0].as_u64().unwrap() > 0, "pages that have changed since");
    drop(held);
    assert_eq!(run.rows(pin), [] as [Json; 0]);

    let stats = run.store.stats();
    for (name, value) in [
        ("commits", stats.commits),
        ("log_bytes", stats.log_bytes),
        ("value_bytes_written", stats.value_bytes_written),
        ("extents", stats.extents),
        ("extent_bytes", stats.extent_bytes),
    ] {
        let found = run.column(&format!("SELECT value FROM system.stats WHERE name = '{name}'"));
        assert_eq!(found, [json!(value)], "{name}");
        assert!(value > 0, "{name}");
    }
}

/// Columns are told without rows, so both have to be the same.
#[tokio::test]
async fn the_columns_that_are_listed_are_those_of_the_rows() {
    let (run, _step, _claim) = Run::busy();
    let listed = run.session.tables().await.unwrap();
    let system: Vec<_> = listed.iter().filter(|table| table.schema == "system").collect();
    assert_eq!(system.len(), 14);
    for table in system {
        let answer = run.session.sql(&format!("SELECT * FROM system.{}", table.name)).await.unwrap();
        assert_eq!(answer.schema.fields(), table.columns.fields(), "{}", table.name);
        assert!(
            answer.row_count() > 0 || ["instances", "objects", "pins"].contains(&&*table.name),
            "{}",
            table.name
        );
    }
}

#[test]
fn the_catalog_can_be_explored() {
    let run = Run::with_tables();
    let tables = run.column(
        "SELECT table_schema || '.' || table_name AS name FROM information_schema.tables \
         WHERE table_schema <> 'information_schema' ORDER BY 1",
    );
    let expected = [
        "public.checker",
        "public.solver",
        "system.claims",
        "system.columns",
        "system.consumers",
        "system.episodes",
        "system.extents",
        "system.gradients",
        "system.instances",
        "system.objects",
        "system.pins",
        "system.policies",
        "system.settings",
        "system.stats",
        "system.steps",
        "system.tables",
    ];
    assert_eq!(tables, expected);
    assert!(run.rows("SHOW TABLES").len() >= expected.len());
    let described = run.rows("DESCRIBE solver");
    assert_eq!(described[0]["column_name"], "sample_id");
    assert_eq!(run.column("SELECT count(*) FROM forebay.public.solver"), [0]);
    assert_eq!(run.column("SELECT count(*) FROM forebay.system.tables"), [2]);
}

#[test]
fn an_empty_store_has_empty_tables() {
    let run = Run::empty();
    for table in [
        "tables",
        "columns",
        "consumers",
        "claims",
        "gradients",
        "episodes",
        "instances",
        "steps",
        "policies",
        "objects",
        "extents",
    ] {
        assert_eq!(run.rows(&format!("SELECT * FROM system.{table}")), Vec::<Json>::new(), "{table}");
    }
}
