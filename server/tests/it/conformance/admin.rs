//! What an operator asks.

use forebay_client::Depth;
use forebay_store::{ConsumerKind, Kind, Options, Row, VerifyStage, Wait};

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
        let sound = client.admin().verify(&mut |progress| stages.push(progress.stage)).unwrap();
        assert!(sound.is_sound() && sound.checked.rows == 1 && sound.checked.values == 1, "{sound:?}");
        assert!(sound.checked.value_bytes >= 200_000 && sound.store_id == Some(world.store.id()));
        assert!(stages.contains(&VerifyStage::Log), "{stages:?}");
        assert!(table.cell(row, "response").is_ok(), "it goes on");
    });
}
