//! What an operator asks.

use std::ops::ControlFlow;

use forebay_client::Depth;
use forebay_store::{
    BackupOptions, BudgetChange, Budgets, ConsumerKind, Delete, Kind, Options, Peek, Retention, Row,
    VerifyStage, Wait, verify,
};

use super::*;

fn world(way: Way) -> World {
    World::with(way, Options::default().object_versions_kept(1).disk_bytes_max(1 << 30))
}

fn on_every_way_kept(case: impl Fn(&World)) {
    for way in Way::ALL {
        eprintln!("on the way {way:?}"); // shown when the case fails
        case(&world(way));
    }
}

#[test]
fn an_overview_shows_budgets_counters_and_how_much_is_ready() {
    on_every_way_kept(|world| {
        let client = world.client();
        let (table, judge) = (solver(&client), judge(&client));
        (0..3).for_each(|at| _ = row(&table, 0, &format!("q_0_{at}"), None));
        let claim = judge.claim(up_to(1), Wait::No).unwrap().unwrap();
        let overview = client.admin().overview().unwrap();
        assert_eq!(overview.settings["disk_bytes_max"].as_deref(), Some("1073741824"));
        assert_eq!(overview.settings["memory_bytes_max"], None);
        assert!(overview.stats["commits"] >= 6 && overview.stats["memory_bytes"] > 0, "{:?}", overview.stats);
        let depth = Depth {
            consumer: "judge".to_owned(),
            kind: ConsumerKind::Task,
            table: "solver".to_owned(),
            ready_rows: 2,
            future_rows: 0,
            processing_rows: 1,
            current_version: 0,
            group_members: None,
        };
        assert_eq!(overview.depths, [depth]);
        drop(claim);
    });
}

#[test]
fn rows_are_evicted_all_or_none_with_a_reason_that_people_see() {
    on_every_way_kept(|world| {
        let client = world.client();
        let (table, judge) = (solver(&client), judge(&client));
        let rows: Vec<Row> = (0..3).map(|at| row(&table, 0, &format!("q_0_{at}"), None)).collect();
        let stranger = Row::from_bytes([7; 24]);
        let admin = client.admin();
        assert_eq!(admin.evict("solver", &[rows[0], stranger], "spoilt").unwrap_err().kind(), Kind::Input);
        assert_eq!(admin.evict("solver", &rows, "").unwrap_err().kind(), Kind::Input);
        assert_eq!(admin.evict("nowhere", &rows, "spoilt").unwrap_err().kind(), Kind::Input);
        assert!(table.counts().unwrap().excluded.is_empty());
        admin.evict("solver", &rows[..2], "spoilt").unwrap();
        assert_eq!(table.counts().unwrap().excluded.get("spoilt"), Some(&2));
        let left = judge.claim(up_to(4), Wait::No).unwrap().unwrap();
        assert_eq!(left.rows(), &rows[2..]);
    });
}

#[test]
fn a_check_reads_everything_and_says_how_far_it_is_and_what_is_wrong() {
    on_every_way_kept(|world| {
        let client = world.client();
        let table = solver(&client);
        let long = vec![7_i32; 50_000];
        let row = table.insert(NewRow::new(0, "q_0_0").unwrap(), [("response", long.into())]).unwrap();
        client.sync().unwrap();
        let mut stages = Vec::new();
        let mut watch = |progress: forebay_store::VerifyProgress| {
            stages.push(progress.stage);
            ControlFlow::Continue(())
        };
        let sound = client.admin().verify(&mut watch).unwrap();
        assert!(sound.is_sound() && sound.checked.rows == 1 && sound.checked.values == 1, "{sound:?}");
        assert!(sound.checked.value_bytes >= 200_000 && sound.store_id == Some(world.store.id()));
        assert!(stages.contains(&VerifyStage::Log), "{stages:?}");
        assert!(table.cell(row, "response").is_ok(), "it goes on");
    });
}

#[test]
fn a_check_ends_where_it_is_stopped_and_another_is_let_in() {
    on_every_way(|world| {
        let client = world.client();
        let table = solver(&client);
        (0..50).for_each(|at| _ = row(&table, 0, &format!("q_0_{at}"), None));
        let mut asked = 0;
        let error = client
            .admin()
            .verify(&mut |_| {
                asked += 1;
                ControlFlow::Break(())
            })
            .unwrap_err();
        assert_eq!((error.kind(), error.cause(), asked), (Kind::Retry, "Stopped", 1), "{error}");
        until_not_busy(|| client.admin().verify(&mut |_| ControlFlow::Continue(())));
    });
}

/// What a call gives once the one before has let go of the disk.
fn until_not_busy<T>(mut call: impl FnMut() -> Result<T, forebay_client::Error>) -> T {
    let began = std::time::Instant::now();
    loop {
        match call() {
            Ok(done) => return done,
            Err(error) => assert_eq!(error.cause(), "Busy", "{error}"),
        }
        assert!(began.elapsed() < Duration::from_secs(60), "it is never let go of");
        std::thread::yield_now();
    }
}

#[test]
fn rows_are_looked_at_whoever_holds_them_and_none_is_claimed() {
    on_every_way(|world| {
        let client = world.client();
        let (table, judge) = (solver(&client), judge(&client));
        (0..12).for_each(|at| _ = row(&table, 0, &format!("q_0_{at}"), None));
        let held = judge.claim(up_to(2), Wait::No).unwrap().unwrap();
        let (admin, commits) = (client.admin(), world.store.commits());
        let ids = |peek: Peek| {
            let rows = admin.peek("solver", &peek.columns(["sample_id", "response"])).unwrap();
            assert_eq!((rows.num_columns(), rows.schema().field(1).name().as_str()), (2, "response"));
            let ids = arrow::compute::cast(rows.column(0), &arrow_schema::DataType::Utf8).unwrap();
            let ids = arrow_array::cast::AsArray::as_string::<i32>(&ids).iter();
            ids.map(|id| id.unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(ids(Peek::new()).len(), 10);
        assert_eq!(ids(Peek::new().rows_max(1)), ["q_0_0"]);
        assert_eq!(ids(Peek::new().newest().rows_max(2)), ["q_0_11", "q_0_10"]);
        assert_eq!(ids(Peek::new().ready_for("judge").rows_max(2)), ["q_0_2", "q_0_3"]);
        assert!(admin.peek("solver", &Peek::new()).unwrap().num_columns() > 10);
        for (table, peek, named) in [
            ("nowhere", Peek::new(), "nowhere"),
            ("solver", Peek::new().columns(["rewrd"]), "reward"),
            ("solver", Peek::new().ready_for("juge"), "judge"),
            ("solver", Peek::new().rows_max(0), "1 to 1000"),
            ("solver", Peek::new().rows_max(usize::MAX), "1 to 1000"),
        ] {
            let error = admin.peek(table, &peek).unwrap_err();
            assert_eq!(error.kind(), Kind::Input, "{error}");
            assert!(error.to_string().contains(named), "{error}");
        }
        assert_eq!(world.store.commits(), commits, "nothing changed");
        drop(held);
    });
}

#[test]
fn budgets_are_changed_one_by_one_and_absurd_ones_change_nothing() {
    on_every_way(|world| {
        let admin = world.client().admin();
        assert_eq!(admin.budgets().unwrap(), Budgets::default());
        let first = admin.change_budgets(&BudgetChange::new().disk_bytes_max(Some(1 << 30))).unwrap();
        assert_eq!(first, Budgets { disk_bytes_max: Some(1 << 30), memory_bytes_max: None });
        let both = admin.change_budgets(&BudgetChange::new().memory_bytes_max(Some(1 << 31))).unwrap();
        assert_eq!(both, Budgets { disk_bytes_max: Some(1 << 30), memory_bytes_max: Some(1 << 31) });
        for absurd in [
            BudgetChange::new().memory_bytes_max(Some(0)),
            BudgetChange::new().disk_bytes_max(Some(0)),
            BudgetChange::new().disk_bytes_max(None).memory_bytes_max(Some(1)),
        ] {
            let error = admin.change_budgets(&absurd).unwrap_err();
            assert_eq!((error.kind(), error.cause()), (Kind::Input, "Argument"), "{error}");
        }
        assert_eq!((admin.budgets().unwrap(), world.store.budgets()), (both, both));
        let settings = admin.overview().unwrap().settings;
        assert_eq!(settings["memory_bytes_max"].as_deref(), Some("2147483648"));
        let lifted = BudgetChange::new().memory_bytes_max(None).disk_bytes_max(Some(u64::MAX - 1));
        assert_eq!(admin.change_budgets(&lifted).unwrap().memory_bytes_max, None);
    });
}

#[test]
fn a_writer_who_waits_for_room_goes_on_when_an_operator_makes_some() {
    for way in Way::ALL {
        eprintln!("on the way {way:?}"); // shown when the case fails
        let options = Options::default().extent_bytes(4096, 1 << 16).disk_bytes_max(300_000);
        let world = World::with(way, options.capacity_wait(Duration::ZERO));
        let client = world.client();
        let table = solver(&client);
        let long = vec![7_i32; 5_000];
        let mut written = 0;
        let refused = loop {
            let new = NewRow::new(0, &format!("q{written}_0_0")).unwrap();
            match table.insert(new, [("response", long.clone().into())]) {
                Ok(_) => written += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(refused.kind(), Kind::Capacity, "{refused}");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let mut changes = Changes::new();
                changes.wait(LONG);
                let new = NewRow::new(0, "late_0_0").unwrap();
                changes.insert("solver", new, [("response", long.clone().into())]);
                // A neighbour's extent is lent with the wait that the store was opened with.
                let began = std::time::Instant::now();
                loop {
                    match client.write(&changes) {
                        Err(error) if error.kind() == Kind::Capacity => {
                            assert!(began.elapsed() < Duration::from_secs(60), "{error}");
                        }
                        outcome => break outcome,
                    }
                }
            });
            world.client().admin().change_budgets(&BudgetChange::new().disk_bytes_max(None)).unwrap();
            assert_eq!(waiting.join().unwrap().unwrap().len(), 1);
        });
        assert_eq!(table.counts().unwrap().written, written + 1);
    }
}

#[test]
fn another_rule_of_retention_holds_at_once() {
    on_every_way(|world| {
        let client = world.client();
        let admin = client.admin();
        assert_eq!(admin.retention().unwrap(), Retention::default());
        let rule = Retention::default().versions(2).consumed_for(Duration::from_millis(1500));
        admin.change_retention(rule).unwrap();
        assert_eq!((admin.retention().unwrap(), world.store.retention()), (rule, rule));
        assert_eq!(admin.overview().unwrap().settings["retention_versions"].as_deref(), Some("2"));
        admin.change_retention(Retention::default()).unwrap();
        assert_eq!(world.store.retention(), Retention::default());
    });
}

#[test]
fn a_compaction_gives_room_back_and_says_how_much() {
    on_every_way(|world| {
        let client = world.client();
        let table = solver(&client);
        let long = vec![7_i32; 300_000];
        for at in 0..4 {
            let new = NewRow::new(0, &format!("q_0_{at}")).unwrap();
            table.insert(new, [("response", long.clone().into())]).unwrap();
        }
        let kept = row(&table, 0, "kept_0_0", None);
        let found = (0..4).map(|at| table.find(0, &format!("q_0_{at}").parse().unwrap()).unwrap().unwrap());
        table.delete(&Delete::rows(found).force()).unwrap();
        drop(table);
        // What a neighbour fills stays its own until it goes.
        drop(client);
        let client = world.client();
        let report = until_not_busy(|| client.admin().compact());
        assert!(report.bytes_after <= report.bytes_before, "{report:?}");
        assert_eq!(world.store.stats().free_extent_bytes, 0);
        assert!(client.table_named("solver").cell(kept, "response").is_ok(), "it goes on");
    });
}

#[test]
fn a_copy_is_a_store_of_its_own_and_one_that_is_stopped_is_nothing() {
    on_every_way(|world| {
        let client = world.client();
        let table = solver(&client);
        (0..20).for_each(|at| _ = row(&table, 0, &format!("q_0_{at}"), Some(1.0)));
        let (admin, to) = (client.admin(), world.dir.path().join(COPIES).join("nightly/1"));
        let options = BackupOptions::default();
        let error = admin.backup(&to, options, &mut |_| ControlFlow::Break(())).unwrap_err();
        assert_eq!((error.kind(), error.cause()), (Kind::Retry, "Stopped"), "{error}");
        let mut told = Vec::new();
        let report = until_not_busy(|| {
            let mut watch = |progress: forebay_store::BackupProgress| {
                told.push(progress);
                ControlFlow::Continue(())
            };
            // The one before may have come further than that, or to its end, where its client was slow to stop it.
            match admin.backup(&to, options, &mut watch) {
                Err(error) if error.cause() == "DirectoryTaken" => {
                    std::fs::remove_dir_all(&to).unwrap();
                    admin.backup(&to, options, &mut watch)
                }
                outcome => outcome,
            }
        });
        assert!(report.to.ends_with("nightly/1") && report.bytes > 0, "{report:?}");
        assert!(told.iter().all(|progress| progress.done_bytes <= progress.total_bytes), "{told:?}");
        let checked = verify(&to, &Options::default(), &mut |_| ControlFlow::Continue(())).unwrap();
        assert!(checked.is_sound() && checked.checked.rows == 20, "{checked:?}");
        let taken = until_not_busy(|| match admin.backup(&to, options, &mut |_| ControlFlow::Continue(())) {
            Ok(report) => panic!("{report:?} is over a copy that is there"),
            Err(error) if error.cause() == "Busy" => Err(error),
            Err(error) => Ok(error),
        });
        assert_eq!((taken.kind(), taken.cause()), (Kind::State, "DirectoryTaken"), "{taken}");
    });
}
