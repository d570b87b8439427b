//! Packets there and back, cut, and damaged.

use super::*;

fn grant() -> Grant {
    let class = |name: &str, values| ClassForm { name: name.into(), values };
    let classes = vec![class("weights", 70), class("moments", 140)];
    Grant {
        hold: 3,
        version: 9,
        is_in_place: true,
        fingerprint: Some(u64::MAX),
        form: Form { layout: 5, classes },
        places: vec![Place { memory: 8, offset: 0 }, Place { memory: 8, offset: 128 }],
        memories: vec![(8, 300)],
        over: vec![1, 2],
    }
}

fn requests() -> Vec<Request> {
    let get = |ask, layout| Request::Get { key: "solver".into(), ask, layout };
    vec![
        Request::Hello { device: "GPU-7".into() },
        get(Ask::Latest, None),
        get(Ask::Exact(7), Some(0)),
        get(Ask::AtLeast(u64::MAX), Some(1)),
        Request::Wait { key: "solver".into(), least: 3, milliseconds: 20_000 },
        Request::Release { hold: 77 },
    ]
}

fn replies() -> Vec<Reply> {
    vec![
        Reply::Welcome { device: "GPU-7".into() },
        Reply::Granted(grant()),
        Reply::Missing { newest: Some(4) },
        Reply::OtherLayout { version: 2, layout: 3 },
        Reply::There,
        Reply::Released { version: None },
        Reply::OtherUser { uid: 1000 },
        Reply::Refused { reason: "no room".into() },
    ]
}

#[test]
fn what_is_written_is_read_and_every_shorter_or_longer_packet_is_refused() {
    for request in requests() {
        let bytes = request.bytes();
        assert_eq!(Request::read(&bytes), Ok(request));
        (0..bytes.len()).for_each(|end| assert!(Request::read(&bytes[..end]).is_err(), "{end}"));
        assert!(Request::read(&[&bytes[..], &[0]].concat()).is_err());
    }
    for reply in replies() {
        let bytes = reply.bytes();
        assert_eq!(Reply::read(&bytes), Ok(reply));
        (0..bytes.len()).for_each(|end| assert!(Reply::read(&bytes[..end]).is_err(), "{end}"));
        assert!(Reply::read(&[&bytes[..], &[0]].concat()).is_err());
    }
}

#[test]
fn the_longest_packet_fits() {
    let class = |at: usize| ClassForm { name: format!("{at:0>CLASS_BYTES_MAX$}"), values: 1 };
    let classes: Vec<ClassForm> = (0..CLASSES_MAX).map(class).collect();
    let places = vec![Place { memory: 1, offset: 0 }; CLASSES_MAX];
    let memories = vec![(1, 1); CLASSES_MAX];
    let form = Form { layout: 0, classes };
    let long = Reply::Granted(Grant { form, places, memories, over: vec![0; OVER_MAX], ..grant() });
    assert!(long.bytes().len() <= PACKET_BYTES_MAX);
    assert_eq!(Reply::read(&long.bytes()), Ok(long));
}

/// Bytes that nobody meant: never a panic, never more memory than the packet has.
#[test]
fn damaged_packets_are_refused_or_say_something_else() {
    let mut random = 1_u64;
    let mut next = move || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        random >> 33
    };
    let packets: Vec<Vec<u8>> =
        requests().iter().map(Request::bytes).chain(replies().iter().map(Reply::bytes)).collect();
    for _ in 0..50_000 {
        let mut bytes = packets[next() as usize % packets.len()].clone();
        for _ in 0..=next() % 3 {
            let at = next() as usize % bytes.len();
            bytes[at] = next() as u8;
        }
        if let Ok(request) = Request::read(&bytes) {
            assert!(Request::read(&request.bytes()).is_ok());
        }
        if let Ok(reply) = Reply::read(&bytes) {
            assert_eq!(Reply::read(&reply.bytes()), Ok(reply));
        }
    }
}
