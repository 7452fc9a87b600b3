//! What a producer says, and what stands in a trail: a record is one or is refused and comes back as it was; a line that is walked over is
//! what the hash of its bytes says; a note that nobody has signed is nobody's; a query is read back as it was written.
#![no_main]

use glovebox::audit::{
    Record,
    entry::Entry,
    note::{Checkpoint, Verifier},
    printable,
    query::Filter,
    record::MOST_BYTES,
    tree,
    walk::{Line, Trust, Walk, first_of, lines, segment_name, torn},
};
use libfuzzer_sys::fuzz_target;

/// The public key of RFC 8032's first test, in the name of a trail `t`: it signs nothing here.
const KEY: &str = "t+6266ec87+AddamAGCsQq31Uv+08lkBzoO4XLz2qYjJa8CGmj3B1Ea";

fn record(input: &[u8]) {
    match Record::read(input) {
        Ok(record) => {
            assert!(input.len() <= MOST_BYTES);
            let again = serde_json::to_vec(&record).expect("a record is always written");
            if again.len() <= MOST_BYTES {
                assert_eq!(Record::read(&again), Ok(record));
            }
        }
        Err(why) => assert!(why.len() < 100),
    }
}

fn walk(input: &[u8]) {
    let mut walk = Walk::default();
    let trust = Trust { verifiers: Verifier::parse(KEY).into_iter().collect(), origin: "t".into() };
    let all: Vec<_> = lines(input).collect();
    let whole: usize = all.iter().map(|(_, line)| line.len() + 1).sum();
    assert_eq!(whole + torn(input).len(), input.len());
    for (at, (offset, line)) in all.iter().enumerate() {
        let place = usize::try_from(*offset).expect("within the input");
        assert_eq!(input.get(place..place + line.len()), Some(*line));
        let before = walk.edge.clone();
        match walk.line(line, all.get(at + 1).map(|(_, next)| *next), &trust) {
            Ok(Line::Entry(entry, hash)) => {
                assert_eq!((hash, entry.n), (tree::leaf(line), before.size()));
                assert_eq!(Entry::read(line).as_ref(), Ok(&*entry));
            }
            Ok(Line::Checkpoint(_)) => panic!("nobody has signed it"),
            Err(fault) => {
                assert!(fault.to_string().len() < 20_000);
                assert_eq!(walk.edge, before);
                return;
            }
        }
    }
}

fuzz_target!(|input: &[u8]| {
    record(input);
    walk(input);
    let Ok(text) = std::str::from_utf8(input) else { return };
    let known: Vec<_> = Verifier::parse(KEY).into_iter().collect();
    assert!(Checkpoint::open(text, &known).is_err(), "nobody has signed it");
    if let Some(verifier) = Verifier::parse(text) {
        assert_eq!(verifier.to_string(), text.trim());
    }
    if let Some(first) = first_of(text) {
        assert_eq!(segment_name(first), text);
    }
    let safe = printable(text, 100);
    assert!(!safe.chars().any(char::is_control) && safe.chars().count() <= 100 * 10 + 1);
    let mut filter = Filter::default();
    if let Some((name, value)) = text.split_once('=')
        && filter.read(name, value) == Ok(true)
    {
        let mut again = Filter::default();
        for (name, value) in filter.pairs() {
            assert_eq!(again.read(name, &value), Ok(true));
        }
        assert_eq!(again, filter);
    }
});
