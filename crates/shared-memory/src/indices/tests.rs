//! Indices and messages that cannot be, and the order of the bytes of a stream.

use super::*;

#[test]
fn an_index_that_cannot_be_is_refused() {
    let (own, other) = (Page::new(), Page::new());
    let mut writer = Writer::new(8);
    writer.publish(5, &own);
    assert!(!other.must_be_woken(FOR_BYTES), "it does not sleep");
    for (index, is_possible) in [(6, false), (u64::MAX, false), (3, true), (2, false), (5, true)] {
        other.forge(0, index);
        let room = writer.room(&other, 8);
        assert_eq!(room.is_ok(), is_possible, "{index}: {room:?}");
    }
    let mut reader = Reader::new(8);
    for (index, is_possible) in [(9, false), (u64::MAX, false), (3, true), (2, false), (8, true)] {
        other.forge(index, 0);
        let available = reader.available(&other, u64::MAX);
        assert_eq!(available.is_ok(), is_possible, "{index}: {available:?}");
    }
    reader.release(4, &own);
    other.forge(13, 0);
    let impossible = reader.available(&other, 9).unwrap_err();
    assert_eq!(impossible, Impossible { index: 13, possible: (8, 12) });
}

#[test]
fn messages_and_bytes_of_the_ring_come_in_their_order() {
    let (own, other) = (Page::new(), Page::new());
    let (mut writer, mut reader) = (Writer::new(1024), Reader::new(1024));
    for round in 0..10 * PLACES {
        let bytes = (round % 3) as u64;
        writer.publish(bytes, &own);
        assert_eq!(writer.place(70, &own, &other), Ok(Some(2 * round % PLACES)));
        writer.publish_message(70, false, &own);
        writer.publish(5, &own);
        assert_eq!(writer.place(9, &own, &other), Ok(Some((2 * round + 1) % PLACES)));
        writer.publish_message(9, true, &own);
        if bytes > 0 {
            assert_eq!(reader.available(&own, u64::MAX), Ok(Next::Ring(bytes)));
            reader.release(bytes, &other);
        }
        let message = |from| Ok(Next::Message { place: 2 * round % PLACES, from, to: 70 });
        assert_eq!(reader.available(&own, 1), message(0));
        reader.skip(64);
        assert_eq!(reader.available(&own, u64::MAX), message(64));
        reader.release(6, &other);
        assert_eq!(reader.available(&own, 1), Ok(Next::Ring(5)));
        reader.release(5, &other);
        // A bare message begins behind the header that it lacks.
        let bare = |from| Ok(Next::Message { place: (2 * round + 1) % PLACES, from, to: HEADER_BYTES + 9 });
        assert_eq!(reader.available(&own, 1), bare(HEADER_BYTES));
        reader.release(4, &other);
        assert_eq!(reader.available(&own, u64::MAX), bare(HEADER_BYTES + 4));
        reader.release(5, &other);
        assert_eq!(reader.available(&own, 1), Ok(Next::Ring(0)));
        assert_eq!(own.unread_by(&other), 0);
    }
}

#[test]
fn a_place_is_used_again_when_its_message_has_been_read() {
    let (own, other) = (Page::new(), Page::new());
    let (mut writer, mut reader) = (Writer::new(1 << 20), Reader::new(1 << 20));
    for _ in 0..PLACES {
        assert!(writer.place(64, &own, &other).unwrap().is_some());
        writer.publish_message(64, false, &own);
    }
    assert_eq!((writer.place(64, &own, &other), own.unread_by(&other)), (Ok(None), 64 * PLACES as u64));
    writer.publish(9, &own);
    for place in 0..PLACES {
        assert_eq!(reader.available(&own, 9), Ok(Next::Message { place, from: 0, to: 64 }));
        reader.release(64, &other);
        assert_eq!(writer.place(64, &own, &other), Ok(Some(0)), "{place}");
    }
    assert_eq!(reader.available(&own, 9), Ok(Next::Ring(9)));
    let mut narrow = Writer::new(64);
    let (own, other) = (Page::new(), Page::new());
    assert_eq!((narrow.place(65, &own, &other), narrow.place(64, &own, &other)), (Ok(None), Ok(Some(0))));
}

#[test]
fn a_message_that_cannot_be_is_refused() {
    let forge = |start, length, is_bare| {
        let other = Page::new();
        other.forge(8, 0);
        other.short.publish(0, start, length, is_bare);
        let mut reader = Reader::new(256);
        reader.available(&other, 1).map_err(|impossible| impossible.index)
    };
    let forged = |start, length| forge(start, length, false);
    assert_eq!(forged(0, 64), Ok(Next::Message { place: 0, from: 0, to: 64 }));
    assert_eq!(forged(0, 164), Ok(Next::Message { place: 0, from: 0, to: 164 }));
    assert_eq!(forged(7, 0), Ok(Next::Ring(7)), "bytes come before it");
    for (start, length, index) in
        [(257, 64, 257), (u64::MAX - 1, 64, u64::MAX - 1), (0, 63, 63), (0, 165, 165)]
    {
        assert_eq!(forged(start, length), Err(index), "{start} {length}");
    }
    for length in [1, 100] {
        let bare = Next::Message { place: 0, from: HEADER_BYTES, to: HEADER_BYTES + length as usize };
        assert_eq!(forge(0, length, true), Ok(bare));
    }
    assert_eq!(
        [0, 101, u32::MAX >> 1].map(|length| forge(0, length, true).unwrap_err()),
        [0, 101, u64::from(u32::MAX >> 1)]
    );
    let (other, mut reader) = (Page::new(), Reader::new(100));
    other.short.publish(0, 0, 101, false);
    assert_eq!(
        reader.available(&other, 1).map_err(|impossible| impossible.index),
        Err(101),
        "longer than the ring"
    );
}
