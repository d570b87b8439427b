use std::collections::VecDeque;
use std::task::Waker;
use std::time::Duration;

use tonic::codegen::Body as _;
use tonic::codegen::http::HeaderMap;

use super::super::Limits;
use super::*;

const LONGEST: usize = 256 << 10;

/// What a transport gives, and then no more for now, or the end.
struct Pieces(VecDeque<Frame<Bytes>>, bool);

impl tonic::codegen::Body for Pieces {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Next {
        match self.0.pop_front() {
            Some(frame) => Poll::Ready(Some(Ok(frame))),
            None if self.1 => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

fn room(wait_max: Duration) -> MessageRoom {
    MessageRoom::new(&Limits { message_bytes_max: LONGEST, room_time_max: wait_max, ..Limits::default() })
}

fn message(packed: bool, content: &[u8]) -> Vec<u8> {
    [&[u8::from(packed)][..], &(content.len() as u32).to_be_bytes(), content].concat()
}

/// A call that brings that in pieces of so many bytes, and ends there or does not.
fn call(brings: Messages, room: &MessageRoom, bytes: &[u8], piece_bytes: usize, ends: bool) -> HeldBack {
    let pieces = bytes.chunks(piece_bytes).map(|piece| Frame::data(Bytes::copy_from_slice(piece)));
    let body = Body::new(Pieces(pieces.collect(), ends));
    HeldBack::new(body, brings, (room.clone(), "reads"), (Clock::default(), Occupied::default()))
}

fn poll(call: &mut HeldBack) -> Next {
    Pin::new(call).poll_frame(&mut Context::from_waker(Waker::noop()))
}

/// All that is given on until nothing comes for now, or the end.
fn read(call: &mut HeldBack) -> Vec<u8> {
    let mut all = Vec::new();
    while let Poll::Ready(Some(frame)) = poll(call) {
        all.extend(frame.unwrap().into_data().unwrap());
    }
    all
}

const HOUR: Duration = Duration::from_secs(3600);
const ALL: u64 = 4 * LONGEST as u64;

#[tokio::test]
async fn what_is_given_on_is_what_has_come_however_it_was_cut() {
    let long = vec![7; 100 << 10];
    let packed = [&0x184D_2A50_u32.to_le_bytes()[..], &3_u32.to_le_bytes(), b"abc"].concat();
    let messages =
        [message(false, b"short"), message(false, &long), message(false, b""), message(true, &packed)];
    let (whole, room) = (messages.concat(), room(HOUR));
    for brings in [Messages::Many, Messages::OneAndFrames] {
        for piece_bytes in [1, 3, 5, 1_000, whole.len()] {
            for length in [0, 2, 5, 7, 10, 12, 20_000, whole.len() - 1, whole.len()] {
                tokio::task::yield_now().await; // a task may take so many permits at once and no more
                let sent = &whole[..length];
                let given = read(&mut call(brings, &room, sent, piece_bytes, true));
                assert!(given == sent, "{brings:?}, {length} bytes in pieces of {piece_bytes}");
            }
        }
    }
    assert_eq!(room.free_of("reads"), ALL, "nobody has it any more");
}

#[tokio::test]
async fn trailers_come_behind_all_that_has_come() {
    let frames = [Frame::data(Bytes::from_static(&[0, 0, 0])), Frame::trailers(HeaderMap::new())];
    let body = Body::new(Pieces(frames.into(), true));
    let parts = (Clock::default(), Occupied::default());
    let mut call = HeldBack::new(body, Messages::One, (room(HOUR), "reads"), parts);
    let Poll::Ready(Some(Ok(first))) = poll(&mut call) else { panic!("nothing came") };
    assert_eq!(&*first.into_data().unwrap(), &[0, 0, 0]);
    assert!(matches!(poll(&mut call), Poll::Ready(Some(Ok(frame))) if frame.is_trailers()));
    assert!(matches!(poll(&mut call), Poll::Ready(None)));
}

#[tokio::test]
async fn a_message_has_its_room_until_its_call_is_answered() {
    let room = room(HOUR);
    let sent = message(false, &vec![7; LONGEST]);
    let mut one = call(Messages::One, &room, &sent, 1_000, true);
    assert!(read(&mut one) == sent);
    let occupied = one.occupied.clone();
    drop(one); // it was read
    assert_eq!(room.free_of("reads"), ALL - LONGEST as u64);
    occupied.give_back();
    assert_eq!(room.free_of("reads"), ALL);
    let mut half = call(Messages::One, &room, &sent[..5_000], 1_000, false);
    assert_eq!(read(&mut half).len(), 5_000);
    assert_eq!(room.free_of("reads"), ALL - LONGEST as u64, "for all that may come");
    drop(half);
    assert_eq!(room.free_of("reads"), ALL);
    let mut short = call(Messages::One, &room, &message(false, &[7; SHORT_BYTES as usize]), 1_000, true);
    read(&mut short);
    assert_eq!(room.free_of("reads"), ALL);
}

#[tokio::test]
async fn nothing_of_a_message_is_given_on_before_there_is_room_and_its_time_begins_then() {
    let (room, sent) = (room(HOUR), message(false, &[7; 100 << 10]));
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(room.take("reads", LONGEST as u64).await.unwrap());
    }
    let mut waits = call(Messages::One, &room, &sent, 1_000, true);
    assert!(read(&mut waits).is_empty() && poll(&mut waits).is_pending());
    let clock = waits.clock.clone();
    assert!(!clock.is_to_begin_anew());
    held.pop();
    assert!(read(&mut waits) == sent);
    assert!(clock.is_to_begin_anew());
}

#[tokio::test]
async fn who_finds_no_room_in_time_is_told_when_to_ask_again() {
    let room = room(Duration::from_millis(1));
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(room.take("reads", LONGEST as u64).await.unwrap());
    }
    let sent = message(false, &[7; 100 << 10]);
    let mut waits = call(Messages::One, &room, &sent, sent.len(), true);
    let frame = std::future::poll_fn(|cx| Pin::new(&mut waits).poll_frame(cx)).await;
    let error = forebay_client::wire::failure_of(&frame.unwrap().unwrap_err()).unwrap();
    assert_eq!((error.cause(), error.wait_before_retry().is_some()), ("Busy", true));
}

#[tokio::test]
async fn of_a_stream_each_message_has_its_room_until_the_next_is_asked_for() {
    let room = room(HOUR);
    let (first, second) = (message(false, &vec![7; LONGEST]), message(false, &[8; 100 << 10]));
    let both = [&first[..], &second].concat();
    let mut many = call(Messages::Many, &room, &both, both.len(), false);
    let frame = |call: &mut HeldBack| match poll(call) {
        Poll::Ready(Some(Ok(frame))) => frame.into_data().unwrap(),
        other => panic!("{other:?}"),
    };
    assert!(frame(&mut many) == first, "it ends where the message does");
    assert_eq!(room.free_of("reads"), ALL - LONGEST as u64);
    assert!(frame(&mut many) == second);
    assert_eq!(room.free_of("reads"), ALL - (100 << 10), "and the first's is free");
    assert!(poll(&mut many).is_pending());
    assert_eq!(room.free_of("reads"), ALL, "who waits for the next has none");
}

#[tokio::test]
async fn frames_behind_a_message_take_no_room_of_messages() {
    let room = room(HOUR);
    let first = message(false, &vec![7; 100 << 10]);
    let all = [&first[..], &message(false, &vec![8; LONGEST])].concat();
    let mut call = call(Messages::OneAndFrames, &room, &all, 10_000, false);
    let mut given = 0;
    while given < first.len() {
        let Poll::Ready(Some(Ok(frame))) = poll(&mut call) else { panic!("nothing came") };
        given += frame.into_data().unwrap().len();
    }
    assert_eq!(room.free_of("reads"), ALL - (100 << 10));
    given += read(&mut call).len();
    assert_eq!((given, room.free_of("reads")), (all.len(), ALL));
}

#[tokio::test]
async fn a_packed_message_takes_room_for_what_it_may_come_to() {
    let room = room(HOUR);
    let head = [&0xFD2F_B528_u32.to_le_bytes()[..], &[0, 0]].concat();
    let zeros =
        |bytes: u32, is_last: u32| [&(is_last | 1 << 1 | bytes << 3).to_le_bytes()[..3], b"0"].concat();
    let cases = [
        ([&head[..], &zeros(1_000, 1)].concat(), 0),
        ([&head[..], &zeros(90_000, 0), &zeros(6_000, 1)].concat(), 94 << 10),
        ([&head[..], &zeros(1 << 20, 1)].concat(), LONGEST as u64),
        (b"nothing that was packed".to_vec(), LONGEST as u64),
        (vec![7; 70 << 10], LONGEST as u64),
    ];
    for (content, takes) in cases {
        let sent = message(true, &content);
        let mut packed = call(Messages::One, &room, &sent, 3, true);
        assert!(read(&mut packed) == sent);
        assert_eq!(room.free_of("reads"), ALL - takes, "{} bytes", content.len());
    }
}

#[tokio::test]
async fn a_second_message_of_a_call_of_one_is_refused_and_one_that_is_too_long_takes_no_room() {
    let room = room(HOUR);
    let two = [message(false, b"one"), message(false, b"two")].concat();
    let mut call_of_one = call(Messages::One, &room, &two, 100, true);
    assert!(matches!(poll(&mut call_of_one), Poll::Ready(Some(Ok(_)))));
    let Poll::Ready(Some(Err(status))) = poll(&mut call_of_one) else { panic!("it was taken") };
    assert_eq!(forebay_client::wire::failure_of(&status).unwrap().cause(), "Protocol");
    let mut long = call(Messages::One, &room, &message(false, &vec![7; LONGEST + 1]), 1_000, true);
    assert_eq!(read(&mut long).len(), LONGEST + 1 + PREFIX_BYTES, "whoever reads it refuses it");
    assert_eq!(room.free_of("reads"), ALL);
}
